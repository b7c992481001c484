package uvbackend

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/core/runner/network"
)

// The isolation modes of Config.Isolation.
const (
	// IsolationAuto uses every mechanism that works on this machine: the sandbox of IsolationNamespaces, or else what there is of a
	// uid per slot, a network namespace and a tmpfs.
	IsolationAuto = "auto"
	// IsolationNamespaces is IsolationAuto on a machine where the whole sandbox works. Elsewhere the backend does not start. The
	// sandbox is a box (docs/sandbox.md) with namespaces, private folders and a seccomp filter. Control groups are limits and not
	// part of it.
	IsolationNamespaces = "namespaces"
	// IsolationNone runs programs as the plugin's own user, with its network and its rights. Only rlimits and cgroups apply.
	IsolationNone = "none"
)

// The values of Config.Start.
const (
	// StartFork starts a program as a copy of an interpreter that has started already, where programs cannot tell.
	StartFork = "fork"
	// StartExec starts a new interpreter for each program.
	StartExec = "exec"
)

// The networks of Config.Network.
const (
	// NetworkPrivate is a network namespace of the program's own, from which it reaches public addresses and NetworkOpen only.
	NetworkPrivate = "private"
	// NetworkHost is the host's network with all its addresses, loopback included.
	NetworkHost = "host"
)

// Config is the section backends.<name> of a backend of type uv. A zero field takes its default.
type Config struct {
	// Isolation is auto (default), namespaces or none.
	Isolation string `json:"isolation"`
	// RunAs is the range of uids, FIRST-LAST, that run programs if the plugin runs as root. Each slot has a uid of its own, and the
	// gid with the same number. Default 60600-61111, which no distribution assigns. checkUsers refuses some ranges.
	RunAs string `json:"run_as"`
	// Network is what a program with a network gets: private, or host. The default is private, and host with IsolationNone. Where
	// private does not work, programs cannot have a network.
	Network string `json:"network"`
	// NetworkOpen lists prefixes of addresses, such as 10.1.0.0/16, that programs with a private network reach besides public
	// addresses. An address of the host itself needs a prefix of its full length. The host's loopback cannot be opened.
	// Requirements may be fetched from these addresses, too, over https.
	NetworkOpen []string `json:"network_open"`
	// WritableDirectories lists folders of the host. A program may change a HostDirectory that is or lies below one of them. In a box
	// every other HostDirectory is read-only. Without a box the rights of the program's user decide. Default: none.
	WritableDirectories []string `json:"writable_directories"`
	// WorkDir holds the work folders. Default: the folder work in CacheDir. Without a box the uids of RunAs must be able to enter
	// WorkDir and CacheDir.
	WorkDir string `json:"work_dir"`
	// CacheDir holds environments, uv's caches and a fetched uv. Default: as root /var/cache/python-executor, else
	// ${XDG_CACHE_HOME:-~/.cache}/python-executor/uv.
	CacheDir string `json:"cache_dir"`
	// CacheBytes limits the environments and uv's package caches in CacheDir. The package caches are emptied first. Then the least
	// recently used environments are removed. Default 20 GiB.
	CacheBytes int64 `json:"cache_bytes"`
	// AllowBuilds lets requirements be built from source distributions and version control. A build executes code of the package.
	// The code has the network of programs with one, sees the credentials of the index, and has the limits below. Default false: only
	// wheels are installed, and none of their code is executed.
	AllowBuilds bool `json:"allow_builds"`
	// PrepareMemoryBytes limits the memory for the preparation of one environment: uv, package builds, and the bytecode compiler.
	// Default 2 GiB.
	PrepareMemoryBytes int64 `json:"prepare_memory_bytes"`
	// PreparePIDs limits the processes and threads of a preparation. Default 512.
	PreparePIDs int64 `json:"prepare_pids"`
	// PrepareSeconds limits the time of a preparation. The wait for other preparations counts. Default 1,200.
	PrepareSeconds int64 `json:"prepare_seconds"`
	// EnvironmentBytes and EnvironmentFiles limit an unpacked environment. Defaults 8 GiB and 200,000.
	EnvironmentBytes int64 `json:"environment_bytes"`
	EnvironmentFiles int64 `json:"environment_files"`
	// CompileBytes limits the Python source of an environment, which is compiled to bytecode. Default 256 MiB.
	CompileBytes int64 `json:"compile_bytes"`
	// IndexURL is the package index. Default: the index that the variables of uv and pip or pip.conf name on this host, else PyPI.
	IndexURL string `json:"index_url"`
	// PythonDownloads lets uv install a Python version that a caller asks for and this machine does not have, in CacheDir. Default: true
	// where only the user who has started the engine uses it (plugin.Configure.Personal), else false.
	PythonDownloads *bool `json:"python_downloads"`
	// ImageMap maps a docker_image to the minor Python version that replaces it. Images of the form python:X.Y… need no entry.
	ImageMap map[string]string `json:"image_map"`
	// Preload names Python modules that a session imports before it is ready. Missing modules are skipped.
	Preload []string `json:"preload"`
	// Start is how programs start: fork (default), or exec.
	Start string `json:"start"`
	// Preimport names Python modules that are imported before a program starts, where programs are forks (Start). Programs can
	// tell. Modules that the program's interpreter or requirements do not have are skipped. Default: none.
	Preimport []string `json:"preimport"`
	// PreimportLearned does the same with modules that more than half of the last programs of an owner, an interpreter and its
	// requirements have imported. Programs can tell. Default: false.
	PreimportLearned bool `json:"preimport_learned"`
	// WarmSessions is the number of interpreters that are kept ready for sessions like the last ones. Default 3, or none for a
	// single call. At most 16. -1 means none.
	WarmSessions int `json:"warm_sessions"`
}

// Default returns the configuration of a backend without settings. The two folders are those of this user.
func Default() Config {
	cache := defaultCacheDir()
	return Config{
		Isolation: IsolationAuto, RunAs: "60600-61111", CacheDir: cache, WorkDir: filepath.Join(cache, "work"),
		CacheBytes: 20 << 30, WarmSessions: 3, ImageMap: map[string]string{}, Preload: []string{}, Start: StartFork, Preimport: []string{}, WritableDirectories: []string{}, Network: NetworkPrivate, NetworkOpen: []string{},
		PrepareMemoryBytes: 2 << 30, PreparePIDs: 512, PrepareSeconds: 1200,
		EnvironmentBytes: 8 << 30, EnvironmentFiles: 200_000, CompileBytes: 256 << 20,
	}
}

func defaultCacheDir() string {
	return cacheDirOf(os.Geteuid(), os.Getenv("XDG_CACHE_HOME"), homeDir())
}

// cacheDirOf is defaultCacheDir of a user. Without a home it lies directly in the folder for temporary files: other users could own a folder
// in between, and exchange what is in it.
func cacheDirOf(uid int, xdg, home string) string {
	const name = "python-executor"
	switch {
	case uid == 0:
		return "/var/cache/" + name
	case filepath.IsAbs(xdg):
		return filepath.Join(xdg, name, "uv")
	case home != "":
		return filepath.Join(home, ".cache", name, "uv")
	}
	return filepath.Join(os.TempDir(), name+"-uv-"+strconv.Itoa(uid))
}

// homeDir returns the home of the plugin's user, or "". A plugin's environment need not have HOME.
func homeDir() string {
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		return home
	}
	u, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || !filepath.IsAbs(u.HomeDir) {
		return ""
	}
	return u.HomeDir
}

// writable reports whether a program may change the HostDirectory dir in a box. dir has no links, or the runner refuses it.
func (c Config) writable(dir string) bool {
	return slices.ContainsFunc(c.WritableDirectories, func(root string) bool {
		root, err := filepath.EvalSymlinks(root)
		return err == nil && inFolder(filepath.Clean(dir), root)
	})
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	d := Default()
	c.Isolation, c.RunAs, c.CacheDir = cmp.Or(c.Isolation, d.Isolation), cmp.Or(c.RunAs, d.RunAs), cmp.Or(c.CacheDir, d.CacheDir)
	c.WorkDir = cmp.Or(c.WorkDir, filepath.Join(c.CacheDir, "work"))
	if c.Network == "" && c.Isolation == IsolationNone {
		c.Network = NetworkHost
	}
	c.Network = cmp.Or(c.Network, d.Network)
	c.WarmSessions, c.Start = cmp.Or(c.WarmSessions, d.WarmSessions), cmp.Or(c.Start, d.Start)
	for key, value := range c.positive() {
		*value = cmp.Or(*value, *d.positive()[key])
	}
	return c
}

// positive returns the numbers that must be greater than 0, by key.
func (c *Config) positive() map[string]*int64 {
	return map[string]*int64{
		"cache_bytes": &c.CacheBytes, "prepare_memory_bytes": &c.PrepareMemoryBytes, "prepare_pids": &c.PreparePIDs,
		"prepare_seconds": &c.PrepareSeconds, "environment_bytes": &c.EnvironmentBytes, "environment_files": &c.EnvironmentFiles,
		"compile_bytes": &c.CompileBytes,
	}
}

// validate returns one error of code invalid with every problem of c, each with its path in the configuration
// ("backends.uv.run_as"). It returns nil if there is no problem. It reads and writes no file.
func (c Config) validate(name string) error {
	c = c.withDefaults()
	p := backend.Section(name)
	switch c.Isolation {
	case IsolationAuto, IsolationNamespaces, IsolationNone:
	default:
		p.Add("isolation", "must be auto, namespaces or none (got %q)", c.Isolation)
	}
	switch c.Network {
	case NetworkPrivate:
		p.Require(c.Isolation != IsolationNone, "network", "must be host with isolation none")
	case NetworkHost:
		p.Require(len(c.NetworkOpen) == 0, "network_open", "must be empty with network host, which is open altogether")
	default:
		p.Add("network", "must be private or host (got %q)", c.Network)
	}
	p.Require(c.Start == StartFork || c.Start == StartExec, "start", "must be fork or exec (got %q)", c.Start)
	for i, module := range c.Preimport {
		p.Require(isModule(module), fmt.Sprintf("preimport[%d]", i), "must be the name of a module, such as numpy (got %q)", module)
	}
	for i, prefix := range c.NetworkOpen {
		_, err := network.ParseRanges([]string{prefix})
		p.Require(err == nil, fmt.Sprintf("network_open[%d]", i), "%v", err)
	}
	for i, dir := range c.WritableDirectories {
		p.Require(filepath.IsAbs(dir) && filepath.Clean(dir) == dir, fmt.Sprintf("writable_directories[%d]", i), "must be an absolute, clean path (got %q)", dir)
	}
	if _, err := parseUIDs(c.RunAs); err != nil {
		p.Add("run_as", "%s", err)
	}
	for key, dir := range map[string]string{"work_dir": c.WorkDir, "cache_dir": c.CacheDir} {
		p.Require(filepath.IsAbs(dir) && filepath.Clean(dir) != "/", key, "must be an absolute path below / (got %q)", dir)
	}
	for key, value := range c.positive() {
		p.Require(*value >= 0, key, "must be > 0 (got %d)", *value)
	}
	p.Require(c.WarmSessions >= -1 && c.WarmSessions <= 16, "warm_sessions", "must be -1 (none) to 16 (got %d)", c.WarmSessions)
	p.Require(c.IndexURL == "" || backend.IsURL(c.IndexURL), "index_url", "must be an http or https URL")
	for _, image := range slices.Sorted(maps.Keys(c.ImageMap)) {
		p.Require(backend.IsMinorVersion(c.ImageMap[image]), "image_map."+image, "must be a minor Python version such as 3.12 (got %q)", c.ImageMap[image])
	}
	return p.Err()
}

// isModule reports whether name is a name of a module that Python can import.
func isModule(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			return false
		}
	}
	return true
}

// parseConfig reads and validates the section of the backend called name. An error names an unknown key.
func parseConfig(name string, section json.RawMessage) (Config, error) {
	c, err := backend.ParseSection(name, section, Config{}, Config.validate)
	return c.withDefaults(), err
}

// Check returns the error with which a backend called name would refuse its section. It starts no backend. Codes: invalid.
func Check(name string, section json.RawMessage) error {
	c, err := parseConfig(name, section)
	if err != nil {
		return err
	}
	return c.checkUsers(context.Background(), name, thisHost())
}

// Filled returns a section with the defaults of the keys that it leaves out. The default work folder lies in the cache folder, and
// the default network depends on the isolation.
func Filled(section json.RawMessage) json.RawMessage {
	c := Default()
	c.WorkDir, c.Network = "", ""
	filled := backend.Filled(section, &c)
	if c.WorkDir != "" && c.Network != "" {
		return filled
	}
	c = c.withDefaults()
	return backend.Filled(section, &c)
}

// SectionUIDs returns the uids under which a section runs programs. ok is false if programs run as the plugin's own user, and for
// an invalid section.
func SectionUIDs(section json.RawMessage) (first, last int, ok bool) {
	c, err := parseConfig("uv", section)
	if err != nil {
		return 0, 0, false
	}
	return c.UIDs()
}
