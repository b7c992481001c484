package job

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/runner/protocol"
)

// The names of the files in the input and in the output folder. See the package's documentation.
const (
	StartFile     = "start.json"
	PrepareFile   = "prepare.json"
	WorkspaceFile = "workspace.tar"
	StdinFile     = "stdin"
	BundleFile    = "ca.pem"
	NetrcFile     = "netrc"
	FeedFile      = "feed.json"
	// PreparedFile is in Prepare.Folder and has a Prepared.
	PreparedFile = "prepared.json"

	EventsFile    = "events"
	ArtifactsFile = "artifacts"

	// FeedSocket is the Unix socket at which job takes the standard input that job-feed brings. It is in the folder that job has
	// as --feed, and job-feed as --output. The path must be short: that of a socket has at most 107 bytes.
	FeedSocket = "stdin.sock"
)

// MaxInput is the maximum size of start.json and of prepare.json, in bytes.
const MaxInput = protocol.MaxStart + 1<<20

// Start is what start.json asks for: one Execution.
type Start struct {
	// Start is the Execution. The runner sets Workspace and Stdin. An empty Path is the PATH of the runner, which is the image's.
	// Without Command and Interpreter the runner looks for python3,
	// then python, on Path, and sets PythonVersion. Deadline is ignored.
	Start protocol.Start `json:"start"`
	// Config is as in a host's Hello. The runner gives WorkRoot to the program's user, and opens Temp to all users. Silence and
	// WorkspacePipe are ignored.
	Config protocol.Config `json:"config"`
	// PythonVersion is the minor version that the interpreter must have, if the runner looks for it; empty: any.
	PythonVersion string `json:"python_version,omitempty"`
	// Image is repeated in the Result as ImageDigest.
	Image string `json:"image,omitempty"`
	// Prepared is the folder of a preparation (Prepare.Folder); empty if there was none.
	Prepared string `json:"prepared,omitempty"`
	// Protect lists folders that programs must not see, as Nomad's. Programs may still pass through them to Prepared. A folder
	// that does not exist is no error.
	Protect []string `json:"protect,omitempty"`
}

// Feed is what feed.json asks for: to bring a standard input while it is written. job-feed gets URL and passes what comes to FeedSocket
// in its output folder. It lives until SIGTERM: Nomad starts a task again that ends.
type Feed struct {
	// URL is an http URL. Its answer has protocol.FrameStdin frames, and protocol.FrameStdinEnd at the end of the input. The
	// parameter from is the number of bytes that were passed on before: an answer that breaks off is asked for again. A status from
	// 400 to 499 says that nobody has the rest: the program's standard input ends.
	URL string `json:"url"`
}

// Prepare is what prepare.json asks for: an environment with requirements, and the files that commands make.
type Prepare struct {
	ExecutionID string `json:"execution_id"`
	// Config is as in Start. Commands and the installer run as its user.
	Config protocol.Config `json:"config"`
	// Folder is made and gets the results. The Execution finds them there (Start.Prepared).
	Folder string `json:"folder"`
	// Commands are shell commands. They run in a folder that has the Workspace. What is in that folder afterwards is the
	// Execution's Workspace.
	Commands []string `json:"commands,omitempty"`
	// CommandEnv are the variables of Commands.
	CommandEnv map[string]string `json:"command_env,omitempty"`
	// Requirements are the lines of requirements.Normalise. They are installed after Commands.
	Requirements []string `json:"requirements,omitempty"`
	// AllowBuilds also installs packages that have no wheel, which runs code of theirs.
	AllowBuilds bool `json:"allow_builds,omitempty"`
	// InstallEnv are the variables of the installer: indexes, proxies. The runner adds those that name ca.pem and netrc.
	InstallEnv map[string]string `json:"install_env,omitempty"`
	// Sources and Closed say what the installer may fetch from (requirements.DriverJob).
	Sources []string `json:"sources,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	// PythonVersion is the minor version that the image must have; empty: any.
	PythonVersion string `json:"python_version,omitempty"`
	// Path is the PATH of the commands. The default is that of the runner, which is the image's.
	Path string `json:"path"`
	// Limits are those of the preparation. DiskBytes bounds Folder. Timeout is for all steps together.
	Limits executor.Limits `json:"limits"`
	// Network allows the commands and the installer the container's network.
	Network bool `json:"network,omitempty"`
	// Protect is as in Start.
	Protect []string `json:"protect,omitempty"`
}

// DefaultConfig is the Config of a container whose program is user 1000 and may write to /work and /tmp. Programs of other containers on
// the machine have the same user, so its processes are counted by the container and not by the user.
func DefaultConfig() protocol.Config {
	return protocol.Config{WorkRoot: "/work", UseWorkRoot: true, Temp: "/tmp", UID: 1000, GID: 1000}
}

// ReadInput reads a file of the input folder into v. Codes: invalid.
func ReadInput(folder, name string, v any) error {
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return executor.Errorf(executor.Invalid, "input: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, MaxInput+1))
	if err == nil && len(raw) > MaxInput {
		err = fmt.Errorf("must be at most %d bytes", MaxInput)
	}
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return executor.Errorf(executor.Invalid, "%s: %w", name, err)
	}
	return nil
}
