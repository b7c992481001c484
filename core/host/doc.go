// Package host starts, watches, restarts and stops the plugin processes of the configured backends.
//
// Each entry of the configuration has one supervisor. The supervisor launches the plugin, waits for its end, and launches
// the next generation after a pause. While the plugin keeps crashing the pause doubles, from a tenth of a second to half a
// minute. An entry has one Backend for the life of the host. Each call goes to the process that is ready when the call
// begins and stays with that process. When the process dies its calls fail with unavailable at once. So does every new
// call until the next generation is ready.
//
// The package knows neither the engine nor any backend. Package plugin knows how to start a process and how to speak to it.
package host
