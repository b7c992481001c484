// Package dockerbackend runs each Execution in a fresh, locked-down container that was waiting for it.
package dockerbackend
