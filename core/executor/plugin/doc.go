// Package plugin runs a Backend or a Frontend in a process of its own, with go-plugin underneath.
//
// ServeBackend is the whole of a plugin's main. Launch starts such a process, configures it and returns its Backend. Each
// process has one supervising stream. The host sends Configure and gets Ready with Info, or a typed error. The host then
// sends pings, and half-closes the stream to drain the plugin. A side that sees the stream break knows that the other side
// is gone. A plugin whose host is gone stops what it runs, closes its backend and exits. A timer does the same in a plugin
// that no host supervises, and another in a plugin that no host kills after its drain.
//
// Every call passes a gate in the host and a gate in the plugin. A gate refuses calls before the plugin is ready and while
// it drains, and a drain waits until the gate is empty. In the host a connection chooses the present process for each call
// (connection.go). In the plugin the gRPC server asks the gate (server.admit).
//
// The package restarts nothing: that is core/host.
package plugin
