// Package config holds the server's configuration as plain structs with defaults and validation.
//
// The package reads no file and no environment; cli/internal/settings does. The section of a plugin stays JSON that only the
// plugin interprets.
//
// One flow: cli/internal/settings starts from Default, applies the file, the environment and the flags, calls Validate, and
// passes the sections to host, engine and frontends.
package config
