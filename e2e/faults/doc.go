// Package faults holds the fault table: what breaks around a proxy, by the
// number of its row, and a test for each that shows what Ramjet does about it.
// docs/OPERATIONS.md tells the same to operators, with the behaviour.
//
// The tests start the built binary and judge it from outside; the processes,
// engines and clients are those of e2e/rig. Where a test started Ramjet through
// it, the end of the test asserts more: no lease is held, no request runs at an
// engine, goroutines and descriptors are back to the base, each request has one
// access line, and the next request is served. A test that ends the process
// itself, or whose engines never answer, checks what is left of these by hand.
//
// The package has nothing but tests, which run beside each other. It refuses to
// leave loopback and signals only processes that it started. It does not run at
// the same time as package e2e in `make test`: both fill a machine of two cores.
//
// Two rows are hours of work and no tests of this package: 49 is `make chaos`
// and 50 is `make soak`, each with a package of its own; a minute of the first
// is part of `make test`. Row 47 is proven on the source, as a static binary
// cannot be given another wall clock without moving the machine's.
//
// The rows:
//
//	 1  client leaves during prefill
//	      TestB7Row01ClientLeavesInPrefill
//	 2  client leaves in mid-stream
//	      TestB7Row02ClientLeavesMidStream
//	      TestB7Row02LeavesAfterTheEnd
//	 3  client closes its sending half
//	      TestB7Row03ClientHalfCloses
//	 4  client reads slowly, or not at all
//	      TestB7Row04CrawlingReader
//	      TestB7Row04SlowReader
//	      TestB7Row04SteadySlowReader
//	 5  a thousand request heads that never end
//	      TestB7Row05SlowLoris
//	 6  a body that trickles
//	      TestB7Row06SteadyBody
//	      TestB7Row06TrickledBody
//	 7  head or body too large
//	      TestB7Row07TooLarge
//	 8  request smuggling
//	      TestB7Row08SmugglingVectors
//	 9  pipelined or early bytes
//	      TestB7Row09ByteByByte
//	      TestB7Row09Pipelining
//	10  JSON that is broken, deep, doubled, huge
//	      TestB7Row10JSON
//	11  compressed request
//	      TestB7Row11Encodings
//	12  unknown model, path, method or type
//	      TestB7Row12Unknown
//	13  no key, or a wrong one
//	      TestB7Row13Keys
//	14  hostile request ids, agents, model names
//	      TestB7Row14HostileText
//	15  forged routing and hop-by-hop headers
//	      TestB7Row15SpoofedHeaders
//	16  connection flood
//	      TestB7Row16ConnectionFlood
//	      TestB7Row16ConnectionLimit
//	17  more work than the engines take
//	      TestB7Row17Overload
//	18  SDKs that retry
//	      TestB7Row18DeadSet
//	      TestB7Row18NoRetry
//	      TestB7Row18OwnRetries
//	19  an engine refuses connections
//	      TestB7Row19Refused
//	20  an engine's address swallows packets
//	      TestB7Row20BlackHole
//	21  an engine takes the request and is silent
//	      TestB7Row21FrozenBeforeHead
//	22  an engine freezes in mid-stream
//	      TestB7Row22EventGap
//	      TestB7Row22FrozenMidStream
//	23  an engine dies before its first byte
//	      TestB7Row23AtMostThree
//	      TestB7Row23KilledBeforeFirstByte
//	      TestB7Row23MovedHeaders
//	      TestB7Row23MovedToNoStream
//	24  an engine dies in mid-stream
//	      TestB7Row24KilledMidStream
//	25  an engine closed a pooled connection
//	      TestB7Row25IdleClosedByEngine
//	26  an answer is cut at any byte
//	      TestB7Row26CutAtEveryByte
//	27  an engine answers nonsense
//	      TestB7Row27BadEngineAnswers
//	      TestB7Row27UnsolicitedBytes
//	      TestB7Row27UnsolicitedBytesTLS
//	28  odd event streams, endless lines
//	      TestB7Row28ByteByByte
//	      TestB7Row28EndlessLine
//	      TestB7Row28HalfEvents
//	      TestB7Row28OddStreams
//	29  200 with an error in it, `abort` without a token
//	      TestB7Row29AbortMoves
//	      TestB7Row29AbortPasses
//	      TestB7Row29OddSuccess
//	30  an engine's own errors
//	      TestB7Row30EngineErrors
//	31  an engine restarts
//	      TestB7Row31EngineRestart
//	      TestB7Row31KilledSim
//	      TestB7Row31LoadingEngine
//	      TestB7Row31RealWarmUp
//	      TestB7Row31Timeline
//	32  an engine flaps
//	      TestB7Row32FlappingPort
//	      TestB7Row32GrowingEjection
//	      TestB7Row32NeverTheLast
//	33  health checks time out, traffic flows
//	      TestB7Row33AllSuspect
//	      TestB7Row33StarvedProbes
//	34  health is 200, generation is dead
//	      TestB7Row34Ejected
//	      TestB7Row34Lies
//	35  200 engines
//	      TestB7Row35ProbeStorm
//	36  lost, doubled, garbled cache events
//	      TestB7Row36Events
//	      TestB7Row36Frames
//	37  a flood of cache events
//	      TestB7Row37Flood
//	38  the index is full
//	      TestB7Row38IndexAtItsCap
//	39  SIGTERM with streams running
//	      TestB7Row39Drain
//	      TestB7Row39DrainLimit
//	      TestB7Row39SecondSignal
//	      TestB7Row39StillAccepts
//	40  a reload of a broken file, or without an engine
//	      TestB7Row40Broken
//	      TestB7Row40Removed
//	41  the binary is replaced
//	      TestB7Row41Upgrade
//	42  a panic
//	      TestB7Row42Panic
//	43  no descriptors, little memory, a blocked log
//	      TestB7Row43Log
//	44  cross-site and guessing requests to the admin port
//	      TestB7Row44AdminOffLoopback
//	      TestB7Row44AdminOnLoopback
//	      TestB7Row44AdminToken
//	45  configuration that names a metadata address, a file, a password
//	      TestB7Row45Config
//	      TestB7Row45Redirect
//	46  an engine's certificate is wrong, expired, too old
//	      TestB7Row46EngineTLS
//	47  the wall clock jumps
//	      TestB7Row47IntervalsAreMonotonic, of the root package
//	48  many users, many aborts
//	      TestB7Row48CrossTalk
//	49  everything at once, at random
//	      make chaos (TestChaos of e2e/chaos)
//	50  hours of load
//	      make soak (TestSoak of e2e/chaos)
package faults
