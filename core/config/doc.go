// Package config holds the server's configuration as plain structs with defaults and validation.
//
// It reads no file and no environment: the CLI does that (cli/internal/settings) and hands the result over. A plugin's
// own section stays opaque JSON that only the plugin understands.
//
// One flow: cli/internal/settings starts from Default, lays file, environment and flags over it, calls Validate, and
// gives the parts to host, engine and frontends.
package config
