package proxy

import "ramjet/engine"

// onTurn runs whenever the client may have sent something. It returns false to
// wait for more.
func (c *conn) onTurn(fd uintptr) bool {
	for {
		p := c.space()
		n, again, err := engine.RawRead(fd, p)
		if again {
			c.giveSpace()
			return false
		}
		if err != nil || n == 0 {
			c.over = true
			return true
		}
		c.w += n
		if !c.whole() {
			return true
		}
		c.inside = true
		c.over = !c.f.run()
		c.inside = false
		if c.over || c.w > c.r {
			return true
		}
		if n < len(p) && !c.left.Load() {
			return false // the watch wakes us if this was the end
		}
	}
}
