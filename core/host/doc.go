// Package host starts, watches, restarts and stops the plugin processes of the configured backends.
//
// Each entry of the configuration has one supervisor: it launches the plugin, publishes its Backend behind a proxy that
// stays the same, waits for its end, and launches the next generation after a pause that doubles from a tenth of a
// second to half a minute while the plugin keeps crashing. A Run that is under way when a plugin dies fails with unavailable at
// once; so does every call until the next generation is ready.
//
// It knows neither the engine nor any backend, and how a process is started and spoken to is core/executor/plugin's.
package host
