// Package nomadbackend runs Executions on a Nomad cluster. Config.Mode chooses how.
//
// In the mode job (package jobs) each Execution is a batch job of its own, which Nomad places on a node with Docker. In the mode
// workers (package workers) the Executions go to resident workers, which Nomad keeps running and counts. A worker is the command
// python-executor worker with a backend of its own, and serves Sessions, too.
//
// This package reads the configuration, makes the client of Nomad's API and chooses the mode. The modes do not import each other.
package nomadbackend
