package executor

import (
	"archive/tar"
	"context"
	"io"
	"slices"
)

// Backend is a sandbox technology. All methods are safe for concurrent use. The rules are BE-… in docs/contract.md;
// core/executor/backendtest checks them.
type Backend interface {
	// Info describes the backend as it is now. Its capabilities are promises. Codes: unavailable.
	Info(ctx context.Context) (Info, error)
	// Run runs job and blocks until nothing of it is left running. It emits Progress, Started, Output and Display into sink, hands
	// every Artifact to sink, and returns the Result. The end of ctx stops the program: SIGTERM (or SIGINT, see
	// Spec.InterruptOnCancel), and after Limits.KillGrace SIGKILL to all that it started. Run then returns a Result with StatusKilled and a nil error. An error from sink also stops the program,
	// and Run returns that error. A failure of the user's input is a Result with StatusFailed and a Failure; an error means that the
	// backend failed. Codes: invalid and unimplemented (refused before anything started; Fields names why), unavailable, internal.
	Run(ctx context.Context, job Job, sink Sink) (Result, error)
	// Attach follows a job that outlived the process that ran it, from r's offsets. It returns as Run does. A job that has ended
	// returns its Result and every Artifact again, until Remove, or in a Session until the next job begins. Codes: not_found,
	// unimplemented.
	Attach(ctx context.Context, job Job, r Resume, sink Sink) (Result, error)
	// Remove makes sure that nothing is left of an Execution, its Result included. It kills the Execution if it runs. Idempotent;
	// safe if the Execution never started. Codes: unavailable, internal.
	Remove(ctx context.Context, id string) error
}

// ErrCallerGone is the cause (context.Cause) of the end of Run's ctx when the caller's process or connection has gone, and has not asked
// to stop. A Backend with Capabilities.Attach then lets the program run on and returns unavailable; any other stops it.
var ErrCallerGone error = &Error{Code: Unavailable, Message: "the caller went away"}

// Job is what a Backend runs.
type Job struct {
	ID    string
	Owner string
	// Attempt counts from 1.
	Attempt int
	// Spec as asked for. Spec.Limits are those that were asked for explicitly.
	Spec Spec
	// Limits are resolved: no zero fields.
	Limits Limits
	// ArtifactBytes bounds the Artifacts together, by their sizes, besides Limits.DiskBytes; 0 = no such bound. It is that of the Engine
	// (engine.max_artifact_bytes), which keeps no more. The backend sends those that fit, and then a Failure of phase collect and code
	// exhausted.
	ArtifactBytes int64
	// Workspace may be nil (Code or Command only). A nil Stdin is empty and closed. Stdin is opened after Workspace was read to its
	// end.
	Workspace *Source
	Stdin     *Source
}

// Resume says where Attach goes on with a job.
type Resume struct {
	// Handle of its Started event.
	Handle []byte
	// Stdout and Stderr are the offsets up to which output is in the log.
	Stdout int64
	Stderr int64
}

// Sink takes the Events and Artifacts of a job. Its methods are called by one goroutine at a time.
type Sink interface {
	// Emit appends Progress, Started, Output or Display to the log. It blocks while the log is full; that is the back-pressure. When
	// it returns nil, the event is in the log, as durable as the Store promises, and the bytes of an Output are the caller's again:
	// a Sink that keeps them takes a copy. When it returns an error, the job must stop.
	Emit(e Event) error
	// Artifact takes one collected file. It reads h.Size bytes from r before it returns.
	Artifact(h *tar.Header, r io.Reader) error
}

// TrailingSink is a Sink that lets the last events of a job travel together with its Result, which saves a round trip each.
type TrailingSink interface {
	Sink
	// Trail takes an event after which only events of its kind and the Result come. It does not wait for the log. The caller of the
	// backend gets the Result when the event is in the log, and the log's error if it is not.
	Trail(e Event) error
}

// Isolation is how far a program is isolated from the host.
type Isolation string

// The isolation levels, weakest first.
const (
	// IsolationNone: a process of the host, which sees the host's world-readable files.
	IsolationNone Isolation = "none"
	// IsolationNamespaces: own mount, pid and network namespaces on the host's kernel.
	IsolationNamespaces Isolation = "namespaces"
	// IsolationContainer: a hardened container.
	IsolationContainer Isolation = "container"
	// IsolationVM: its own kernel, or one emulated in user space.
	IsolationVM Isolation = "vm"
)

// Capabilities are promises. A backend enforces what is true here, and refuses with Unimplemented a Spec that asks for what is false.
// Every backend enforces Timeout, OutputBytes, KillGrace and cancel, which have no field here.
type Capabilities struct {
	Isolation Isolation `json:"isolation" doc:"none, namespaces, container or vm."`
	// NetworkOff: the program can be kept from every network; NetworkOn: it can be given one.
	NetworkOff bool `json:"network_off"`
	NetworkOn  bool `json:"network_on"`
	// Memory, Disk, CPU, PIDs and CPUTime: that field of Limits is enforced. CPU is CPUShares.
	Memory  bool `json:"memory"`
	Disk    bool `json:"disk"`
	CPU     bool `json:"cpu"`
	PIDs    bool `json:"pids"`
	CPUTime bool `json:"cpu_time"`
	// Commands: Spec.Command runs.
	Commands bool `json:"commands"`
	// Requirements: Spec.Requirements are installed.
	Requirements bool `json:"requirements"`
	// Images: any Spec.Image is used as a container image. A backend without Images may map some of them (see Info.Images).
	Images bool `json:"images"`
	// PreCommands: Spec.PreCommands run, as root in the image where the backend prepares images, else as the program's user in the
	// work folder.
	PreCommands bool `json:"pre_commands"`
	// Artifacts: Spec.Outputs are collected.
	Artifacts bool `json:"artifacts"`
	// MemorySamples: Spec.SampleInterval works.
	MemorySamples bool `json:"memory_samples"`
	// SystemInterpreter: InterpreterSystem works.
	SystemInterpreter bool `json:"system_interpreter"`
	HostDirectories   bool `json:"host_directories"`
	Scripts           bool `json:"scripts"`
	Sessions          bool `json:"sessions"`
	Attach            bool `json:"attach"`
	// LocalPath: the backend shares the file system of its caller, so a Source with a Path crosses as a name.
	LocalPath bool       `json:"local_path"`
	Languages []Language `json:"languages"`
	// PythonVersions are the exact minor versions at hand, newest first; empty with Images.
	PythonVersions []string `json:"python_versions" doc:"Exact minor versions, newest first."`
	// PythonDownloads are further exact minor versions, newest first. The backend installs one when a Spec first asks for it.
	PythonDownloads []string `json:"python_downloads" doc:"Further exact minor versions, newest first. One is installed when it is first asked for."`
}

// Pythons returns all minor versions that a Spec may ask for: those at hand, and then those that are installed when they are asked for.
func (c Capabilities) Pythons() []string { return slices.Concat(c.PythonVersions, c.PythonDownloads) }

// Info describes a Backend.
type Info struct {
	// Name is the backend's name in the configuration.
	Name string `json:"name"`
	// Type is the implementation ("uv", "docker", "fake").
	Type    string `json:"type"`
	Version string `json:"version"`
	// Generation counts the starts of the plugin process that answers, from 1; 0 without a plugin process. The Host sets it.
	Generation int `json:"generation,omitzero"`
	// Healthy: Run is expected to work. Otherwise Message says why not. A former backend that drains has a Message, too.
	Healthy bool   `json:"healthy"`
	Message string `json:"message,omitzero"`
	// Capacity is how many jobs it can run at once; 0 = no bound of its own.
	Capacity     int          `json:"capacity"`
	Capabilities Capabilities `json:"capabilities"`
	// Images are the names of images that are accepted without Capabilities.Images. "python:X.Y…" is accepted besides, for a version
	// of Capabilities.Pythons, and means that interpreter. The Engine refuses all others before Run.
	Images []string `json:"images,omitempty"`
	// Warnings name every default that is not enforced on this host, and what would change that.
	Warnings []string `json:"warnings,omitempty"`
	// Details are facts for people: uid range, paths, versions of tools, active mechanisms.
	Details map[string]string `json:"details,omitempty"`
	// Metrics are gauges and counters of the backend itself (cache bytes, hits, slots), by snake_case name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
}
