# syntax=docker/dockerfile:1
# One static binary and nothing else: no shell, no libraries, no package manager.
#
#   docker run --read-only -p 8000:8000 -p 9900:9900 ramjet --engine a=http://host:8001 --engine b=http://host:8002

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# The modules are a layer of their own, so that a change of code fetches none of them again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS=linux TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /ramjet .

FROM scratch
# Engines behind https:// are verified against these.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /ramjet /ramjet
# In a container loopback is out of everybody's reach. Off loopback, what changes something asks for admin.token_file.
ENV RAMJET_ADMIN_LISTEN=0.0.0.0:9900
EXPOSE 8000 9900
# nonroot, as the distroless images number it. Nothing is ever written, so the root may be read-only.
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/ramjet", "health"]
ENTRYPOINT ["/ramjet"]
