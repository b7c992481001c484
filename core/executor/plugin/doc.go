// Package plugin runs a Backend in a process of its own, with go-plugin underneath.
//
// ServeBackend is the whole of a plugin's main. Launch starts such a process, configures it and returns its Backend. In
// between stands one supervising stream per process: Configure goes in and Ready with Info (or a typed error) comes out;
// pings say that the other side is alive; the host half-closes it to drain the plugin, and whoever sees it break knows
// that the other side is gone. A plugin whose host is gone stops what it runs, closes its backend and exits by itself;
// two timers do the same when no stream was ever opened, or it has ended and nobody came to kill.
//
// It restarts nothing: that is core/host.
package plugin
