// Package settings reads the configuration: defaults, then a file, then the environment, then flags.
//
// core/config says what the configuration means, and validates it. Each plugin does so for its own section.
//
// One flow: Load gives every source to one viper. viper reads the file (YAML, JSON or TOML) and chooses the value of each key.
// Each value is decoded strictly into config.Config, by one hook that also reads the text of variables and flags. Unknown and
// duplicate keys are errors.
//
// viper does not tell which source it chose. So origin repeats the precedence, but only for an error and for Origins. The sections of backends
// are opaque to viper, because it would change the case of their keys (docs/decisions/0043).
package settings
