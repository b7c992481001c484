// Package settings reads the configuration: defaults, then a YAML file, then the environment, then flags.
//
// core/config says what the configuration means, and validates it. Each plugin does so for its own section.
//
// One flow: Load walks the YAML nodes against the keys of config.Config, decodes every key strictly from the layer that wins,
// and validates the whole. Unknown and duplicate keys are errors that name the key and the line. A library for settings would
// choose the layer, but it does not say which one it chose, and every error here names it (docs/decisions/0013).
package settings
