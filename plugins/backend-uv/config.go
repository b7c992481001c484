package uvbackend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// The isolation modes of Config.Isolation.
const (
	// IsolationAuto uses every mechanism that works here: uid per slot, network namespace, tmpfs, cgroups.
	IsolationAuto = "auto"
	// IsolationNone runs programs as the plugin's own user, with its network and its rights. Only rlimits and cgroups stay.
	IsolationNone = "none"
	// IsolationNamespaces is the full host sandbox. It does not exist yet, and a configuration that asks for it is refused.
	IsolationNamespaces = "namespaces"
)

// Config is the section backends.<name> of a backend of type uv. A zero field takes its default.
type Config struct {
	// Isolation is auto (default) or none.
	Isolation string `json:"isolation"`
	// RunAs is the range of uids, FIRST-LAST, whose members run programs, one per slot, when we are root. Each is its own
	// group too. Default 60600-61111, which no distribution hands out. CheckUsers says which ranges are refused.
	RunAs string `json:"run_as"`
	// WorkDir holds the work folders. Default: work in CacheDir. Every uid of RunAs must be able to pass through it.
	WorkDir string `json:"work_dir"`
	// CacheDir holds environments, uv's cache and a fetched uv. Default: as root /var/cache/python-executor, else
	// ${XDG_CACHE_HOME:-~/.cache}/python-executor/uv. Every uid of RunAs must be able to read it.
	CacheDir string `json:"cache_dir"`
	// CacheBytes bounds what CacheDir holds; the environment that was not used for longest goes first. Default 20 GiB.
	CacheBytes int64 `json:"cache_bytes"`
	// AllowBuilds lets requirements be built from source distributions and version control. That executes code of theirs, with
	// a network and in sight of the index's credentials, within the bounds below. Default false: wheels only, of which nothing is
	// executed.
	AllowBuilds bool `json:"allow_builds"`
	// PrepareMemoryBytes bounds the memory that the preparation of one environment uses: uv, what it builds, and the compiler of
	// bytecode. Default 2 GiB.
	PrepareMemoryBytes int64 `json:"prepare_memory_bytes"`
	// PreparePIDs bounds its processes and threads. Default 512.
	PreparePIDs int64 `json:"prepare_pids"`
	// PrepareSeconds bounds its time, with the wait for another preparation. Default 1,200.
	PrepareSeconds int64 `json:"prepare_seconds"`
	// EnvironmentBytes and EnvironmentFiles bound an environment when it is unpacked. Defaults 8 GiB and 200,000.
	EnvironmentBytes int64 `json:"environment_bytes"`
	EnvironmentFiles int64 `json:"environment_files"`
	// CompileBytes bounds the Python source of an environment, which is compiled ahead. Default 256 MiB.
	CompileBytes int64 `json:"compile_bytes"`
	// IndexURL is the package index. Default: what pip and uv of this host are told by their variables and pip.conf, else
	// PyPI.
	IndexURL string `json:"index_url"`
	// ImageMap maps a docker_image to the minor Python version that stands for it here, beside python:X.Y….
	ImageMap map[string]string `json:"image_map"`
	// Preload names Python modules that a session imports before it is ready; those that are not there are passed over.
	Preload []string `json:"preload"`
	// WarmSessions is how many interpreters are ready for sessions like those that were opened last. Default 3, or none for a
	// single call; at most 16; -1 = none.
	WarmSessions int `json:"warm_sessions"`
}

// Default returns the configuration of a backend that nobody configured. The two folders are those of this user.
func Default() Config {
	cache := defaultCacheDir()
	return Config{
		Isolation: IsolationAuto, RunAs: "60600-61111", CacheDir: cache, WorkDir: filepath.Join(cache, "work"),
		CacheBytes: 20 << 30, WarmSessions: 3, ImageMap: map[string]string{}, Preload: []string{},
		PrepareMemoryBytes: 2 << 30, PreparePIDs: 512, PrepareSeconds: 1200,
		EnvironmentBytes: 8 << 30, EnvironmentFiles: 200_000, CompileBytes: 256 << 20,
	}
}

func defaultCacheDir() string {
	const name = "python-executor"
	if os.Geteuid() == 0 {
		return "/var/cache/" + name
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, name, "uv")
	}
	if home := homeDir(); home != "" {
		return filepath.Join(home, ".cache", name, "uv")
	}
	return filepath.Join(os.TempDir(), name+"-"+strconv.Itoa(os.Geteuid()), "uv")
}

// homeDir is the home of the plugin's user: a plugin's environment need not have HOME.
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

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	d := Default()
	if c.Isolation == "" {
		c.Isolation = d.Isolation
	}
	if c.RunAs == "" {
		c.RunAs = d.RunAs
	}
	if c.CacheDir == "" {
		c.CacheDir = d.CacheDir
	}
	if c.WorkDir == "" {
		c.WorkDir = filepath.Join(c.CacheDir, "work")
	}
	for key, value := range c.positive() {
		if *value == 0 {
			*value = *d.positive()[key]
		}
	}
	if c.WarmSessions == 0 {
		c.WarmSessions = d.WarmSessions
	}
	return c
}

// positive are the numbers that must be more than 0, by key.
func (c *Config) positive() map[string]*int64 {
	return map[string]*int64{
		"cache_bytes": &c.CacheBytes, "prepare_memory_bytes": &c.PrepareMemoryBytes, "prepare_pids": &c.PreparePIDs,
		"prepare_seconds": &c.PrepareSeconds, "environment_bytes": &c.EnvironmentBytes, "environment_files": &c.EnvironmentFiles,
		"compile_bytes": &c.CompileBytes,
	}
}

// Validate reports every problem of c by its path in the configuration ("backends.uv.run_as"), as one error of code
// invalid; nil if there is none. It touches no file.
func (c Config) Validate() error { return c.validate("uv") }

func (c Config) validate(name string) error {
	c = c.withDefaults()
	p := problems{prefix: "backends." + name + "."}
	switch c.Isolation {
	case IsolationAuto, IsolationNone:
	case IsolationNamespaces:
		p.add("isolation", "namespaces is not available in this version: use auto, or none")
	default:
		p.add("isolation", "must be auto or none (got %q)", c.Isolation)
	}
	if _, err := parseUIDs(c.RunAs); err != nil {
		p.add("run_as", "%s", err)
	}
	for key, dir := range map[string]string{"work_dir": c.WorkDir, "cache_dir": c.CacheDir} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			p.add(key, "must be an absolute path below / (got %q)", dir)
		}
	}
	for key, value := range c.positive() {
		if *value < 0 {
			p.add(key, "must be > 0 (got %d)", *value)
		}
	}
	if c.WarmSessions < -1 || c.WarmSessions > 16 {
		p.add("warm_sessions", "must be -1 (none) to 16 (got %d)", c.WarmSessions)
	}
	if c.IndexURL != "" {
		if u, err := url.Parse(c.IndexURL); err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			p.add("index_url", "must be an http or https URL")
		}
	}
	for _, image := range slices.Sorted(maps.Keys(c.ImageMap)) {
		if !minorForm.MatchString(c.ImageMap[image]) {
			p.add("image_map."+image, "must be a minor Python version such as 3.12 (got %q)", c.ImageMap[image])
		}
	}
	return p.err()
}

// minorForm is an exact minor version.
var minorForm = regexp.MustCompile(`^3\.(0|[1-9][0-9]?)$`)

// parseConfig reads a plugin's section. An unknown key is an error that names it.
func parseConfig(name string, raw json.RawMessage) (Config, error) {
	p := problems{prefix: "backends." + name + "."}
	var c Config
	if len(bytes.TrimSpace(raw)) > 0 {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(raw, &keys); err != nil {
			return Config{}, executor.FieldErrorf(executor.Invalid, "backends."+name, "must be a mapping of settings")
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if err := c.set(key, keys[key]); err != nil {
				p.add(key, "%s", err)
			}
		}
	}
	if err := p.err(); err != nil {
		return Config{}, err
	}
	if err := c.validate(name); err != nil {
		return Config{}, err
	}
	return c.withDefaults(), nil
}

// set reads one key strictly, so that each wrong value is named by its own path.
func (c *Config) set(key string, value json.RawMessage) error {
	targets := map[string]any{
		"isolation": &c.Isolation, "run_as": &c.RunAs, "work_dir": &c.WorkDir, "cache_dir": &c.CacheDir,
		"allow_builds": &c.AllowBuilds, "index_url": &c.IndexURL, "image_map": &c.ImageMap,
		"preload": &c.Preload, "warm_sessions": &c.WarmSessions,
	}
	for key, value := range c.positive() {
		targets[key] = value
	}
	target, known := targets[key]
	if !known {
		return fmt.Errorf("unknown key; known are %s", strings.Join(slices.Sorted(maps.Keys(targets)), ", "))
	}
	if err := json.Unmarshal(value, target); err != nil {
		wants := map[string]string{"allow_builds": "true or false", "image_map": "a mapping of image to version", "preload": "a list of module names", "warm_sessions": "a whole number"}
		if _, number := c.positive()[key]; number {
			return fmt.Errorf("must be a whole number (got %s)", value)
		}
		if want := wants[key]; want != "" {
			return fmt.Errorf("must be %s (got %s)", want, value)
		}
		return fmt.Errorf("must be a text (got %s)", value)
	}
	return nil
}

// problems collects what is wrong, by path.
type problems struct {
	prefix string
	fields []executor.FieldError
}

func (p *problems) add(key, format string, args ...any) {
	p.fields = append(p.fields, executor.FieldError{Field: p.prefix + key, Message: fmt.Sprintf(format, args...)})
}

func (p *problems) err() error {
	if len(p.fields) == 0 {
		return nil
	}
	slices.SortFunc(p.fields, func(a, b executor.FieldError) int { return strings.Compare(a.Field, b.Field) })
	lines := make([]string, len(p.fields))
	for i, f := range p.fields {
		lines[i] = f.Field + ": " + f.Message
	}
	return &executor.Error{Code: executor.Invalid, Message: strings.Join(lines, "\n"), Fields: p.fields}
}
