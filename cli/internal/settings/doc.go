// Package settings reads the configuration: defaults, then a YAML file, then the environment, then flags.
//
// It is not the configuration's meaning: that is core/config, which also validates it, and each plugin for its own
// section. viper decides which layer wins for the fixed keys; the maps (backends and what is in them) go around it,
// because viper lower-cases keys and theirs keep their case.
//
// One flow: Load walks the YAML nodes against the keys of config.Config (unknown and doubled keys are errors that name
// the key and the line), hands the leaves to viper, decodes what viper returns strictly, and validates the whole.
package settings
