package dockerbackend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// Config is the section backends.<name> of a backend of type docker, as Default fills it and a section changes it.
type Config struct {
	// Host is the daemon: unix://, tcp://, ssh://. Default: empty, which means DOCKER_HOST, else the docker command's
	// context, else the default socket.
	Host string `json:"host"`
	// DefaultImage runs what names no image. Default python:3.12-slim.
	DefaultImage string `json:"default_image"`
	// Images are the images that may be asked for ("python", "python:3.*", "registry.example.org/team/*"): * stands for any
	// characters but a slash, ** for any, ? for one; a name without a tag means every tag and digest; "*" alone every image.
	// DefaultImage always may. Default: the official Python images.
	Images []string `json:"images"`
	// TrustedImages are the images whose preparations get the credentials of package indexes and proxies, in the form of
	// Images. DefaultImage is trusted only if an entry matches it. Default: none.
	TrustedImages []string `json:"trusted_images"`
	// Runtime is the container runtime ("runc", "runsc"). Default: the daemon's own.
	Runtime string `json:"runtime"`
	// Network is the daemon's network for programs that may use one. Default: a bridge of our own, on which private and
	// metadata addresses are blocked where we can (Info says where we cannot). A network that is named is used as it is.
	Network string `json:"network"`
	// CPUs is the most CPU time that a program may use, in CPUs. Default 0: all of the daemon's.
	CPUs float64 `json:"cpus"`
	// SilenceSeconds is how long a program goes on without a backend: after a crash it can be found again for so long. A
	// Result that nobody removes is kept for about as long. Default 60.
	SilenceSeconds int `json:"silence_seconds"`
	// Preload names Python modules that a session imports before it is ready; those that are not there are passed over.
	Preload []string `json:"preload"`
	// Pool are the containers that wait for work.
	Pool PoolConfig `json:"pool"`
	// Prepare is how images with requirements are made.
	Prepare PrepareConfig `json:"prepare"`
}

// PoolConfig sizes the pool of waiting containers. An idle one takes about 10 MB.
type PoolConfig struct {
	// MinIdle containers wait for each kind of request (image, network, disk size) that has been seen. Default 2; 0: every
	// program starts cold.
	MinIdle int `json:"min_idle"`
	// Max bounds the waiting ones together; the kind that was not used for longest goes first. Default 12.
	Max int `json:"max"`
	// Sessions wait to be opened. Default 3.
	Sessions int `json:"sessions"`
}

// PrepareConfig says how pre_commands and requirements become an image.
type PrepareConfig struct {
	// IndexURL is the package index. Default: what pip and uv of this host are told by their variables, else PyPI.
	IndexURL string `json:"index_url"`
	// ExtraIndexURLs are asked as well.
	ExtraIndexURLs []string `json:"extra_index_urls"`
	// FindLinks is a folder of this host, or a URL, with packages. A folder is copied to the daemon each time.
	FindLinks string `json:"find_links"`
	// Proxy is the proxy of preparations; programs do not see it. Default: this host's HTTPS_PROXY.
	Proxy string `json:"proxy"`
	// CACert is a file of this host with the certificates that preparations trust, besides the image's own. Default:
	// SSL_CERT_FILE and what pip is told, else what this host trusts.
	CACert string `json:"ca_cert"`
	// Runtime is the container runtime of preparations. Default: that of programs (Config.Runtime). Users' pre_commands run in
	// it as root, and no code of users' otherwise.
	Runtime string `json:"runtime"`
	// Network is the daemon's network of preparations. Default: its bridge for requirements, and for pre_commands, which
	// users write, and what follows them, the network of programs (Config.Network).
	Network string `json:"network"`
	// AllowBuilds: requirements without a wheel are built, in the preparation's container. Default: wheels only.
	AllowBuilds bool `json:"allow_builds"`
	// TimeoutSeconds bounds one preparation. Default 900.
	TimeoutSeconds int `json:"timeout_seconds"`
	// MemoryMB and DiskMB bound what one may use. Default 2048 and 10240.
	MemoryMB int `json:"memory_mb"`
	DiskMB   int `json:"disk_mb"`
	// CacheBytes bounds the prepared images together; the one that was not used for longest goes first. Default 20 GiB.
	CacheBytes int64 `json:"cache_bytes"`
}

// Default returns the configuration of a backend that nobody configured.
func Default() Config {
	return Config{
		DefaultImage: "python:3.12-slim", Images: []string{"python", "python:*", "python@*"}, TrustedImages: []string{}, SilenceSeconds: 60, Preload: []string{},
		Pool:    PoolConfig{MinIdle: 2, Max: 12, Sessions: 3},
		Prepare: PrepareConfig{ExtraIndexURLs: []string{}, TimeoutSeconds: 900, MemoryMB: 2048, DiskMB: 10240, CacheBytes: 20 << 30},
	}
}

func (c Config) silence() time.Duration { return time.Duration(c.SilenceSeconds) * time.Second }

// Validate reports every problem of c by its path in the configuration ("backends.docker.pool.max"), as one error of code
// invalid; nil if there is none. It asks no daemon.
func (c Config) Validate() error { return c.validate("docker") }

func (c Config) validate(name string) error {
	p := problems{prefix: "backends." + name + "."}
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			p.add(key, format, args...)
		}
	}
	scheme, rest, found := strings.Cut(c.Host, "://")
	check(c.Host == "" || found && rest != "" && slices.Contains([]string{"unix", "tcp", "ssh", "http", "https"}, scheme),
		"host", "must be unix://PATH, tcp://HOST:PORT or ssh://HOST (got %q)", c.Host)
	_, nameErr := parseRef(c.DefaultImage)
	check(nameErr == nil, "default_image", "must be the name of an image (got %q)", c.DefaultImage)
	patterns := func(key string, list []string) {
		for i, glob := range list {
			if _, err := parsePattern(glob); err != nil {
				p.add(fmt.Sprintf("%s[%d]", key, i), "%s", err)
			}
		}
	}
	patterns("images", c.Images)
	patterns("trusted_images", c.TrustedImages)
	check(notShared(c.Prepare.Network), "prepare.network", "must be a network of its own: host and container:… are none (got %q)", c.Prepare.Network)
	check(notShared(c.Network), "network", "must be a network of its own: host and container:… are none (got %q)", c.Network)
	check(c.CPUs >= 0 && c.CPUs <= 4096, "cpus", "must be from 0 to 4096 (got %v)", c.CPUs)
	check(c.SilenceSeconds >= 5 && c.SilenceSeconds <= 86400, "silence_seconds", "must be from 5 to 86400 (got %d)", c.SilenceSeconds)
	check(c.Pool.MinIdle >= 0, "pool.min_idle", "must be >= 0 (got %d)", c.Pool.MinIdle)
	check(c.Pool.Sessions >= 0, "pool.sessions", "must be >= 0 (got %d)", c.Pool.Sessions)
	check(c.Pool.Max >= max(c.Pool.MinIdle, c.Pool.Sessions) && c.Pool.Max <= 1000, "pool.max", "must be at least min_idle and sessions, and at most 1000 (got %d)", c.Pool.Max)
	for i, index := range append([]string{c.Prepare.IndexURL}, c.Prepare.ExtraIndexURLs...) {
		key := "prepare.index_url"
		if i > 0 {
			key = fmt.Sprintf("prepare.extra_index_urls[%d]", i-1)
		}
		check(index == "" && i == 0 || isURL(index), key, "must be an http or https URL")
	}
	check(c.Prepare.Proxy == "" || isURL(c.Prepare.Proxy), "prepare.proxy", "must be an http or https URL")
	check(c.Prepare.FindLinks == "" || isURL(c.Prepare.FindLinks) || filepath.IsAbs(c.Prepare.FindLinks), "prepare.find_links", "must be an absolute path or a URL")
	check(c.Prepare.CACert == "" || filepath.IsAbs(c.Prepare.CACert), "prepare.ca_cert", "must be an absolute path (got %q)", c.Prepare.CACert)
	check(c.Prepare.TimeoutSeconds > 0, "prepare.timeout_seconds", "must be > 0 (got %d)", c.Prepare.TimeoutSeconds)
	check(c.Prepare.MemoryMB >= 64, "prepare.memory_mb", "must be at least 64 (got %d)", c.Prepare.MemoryMB)
	check(c.Prepare.DiskMB >= 64, "prepare.disk_mb", "must be at least 64 (got %d)", c.Prepare.DiskMB)
	check(c.Prepare.CacheBytes > 0, "prepare.cache_bytes", "must be > 0 (got %d)", c.Prepare.CacheBytes)
	return p.err()
}

func notShared(network string) bool {
	return !strings.HasPrefix(network, "container:") && network != "host"
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// Check finds what a backend called name would refuse in its section, without asking any daemon. Codes: invalid.
func Check(name string, section json.RawMessage) error {
	_, err := parseConfig(name, section)
	return err
}

// parseConfig reads a plugin's section over the defaults. An unknown key is an error that names it.
func parseConfig(name string, raw json.RawMessage) (Config, error) {
	c := Default()
	p := problems{prefix: "backends." + name + "."}
	var pool, prepare json.RawMessage
	p.read("", raw, map[string]any{
		"host": &c.Host, "default_image": &c.DefaultImage, "images": &c.Images, "trusted_images": &c.TrustedImages, "runtime": &c.Runtime, "network": &c.Network,
		"cpus": &c.CPUs, "silence_seconds": &c.SilenceSeconds, "preload": &c.Preload, "pool": &pool, "prepare": &prepare,
	})
	p.read("pool.", pool, map[string]any{"min_idle": &c.Pool.MinIdle, "max": &c.Pool.Max, "sessions": &c.Pool.Sessions})
	r := &c.Prepare
	p.read("prepare.", prepare, map[string]any{
		"index_url": &r.IndexURL, "extra_index_urls": &r.ExtraIndexURLs, "find_links": &r.FindLinks, "proxy": &r.Proxy, "ca_cert": &r.CACert,
		"runtime": &r.Runtime, "network": &r.Network, "allow_builds": &r.AllowBuilds,
		"timeout_seconds": &r.TimeoutSeconds, "memory_mb": &r.MemoryMB, "disk_mb": &r.DiskMB, "cache_bytes": &r.CacheBytes,
	})
	if err := p.err(); err != nil {
		return Config{}, err
	}
	return c, c.validate(name)
}

// problems collects what is wrong, by path.
type problems struct {
	prefix string
	fields []executor.FieldError
}

// read sets each target from its key of section, strictly, so that each wrong value is named by its own path.
func (p *problems) read(under string, section json.RawMessage, targets map[string]any) {
	if len(bytes.TrimSpace(section)) == 0 || string(section) == "null" {
		return
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(section, &keys) != nil {
		p.fields = append(p.fields, executor.FieldError{Field: strings.TrimSuffix(p.prefix+under, "."), Message: "must be a mapping of settings"})
		return
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		target, known := targets[key]
		if !known {
			p.add(under+key, "unknown key; known are %s", strings.Join(slices.Sorted(maps.Keys(targets)), ", "))
		} else if json.Unmarshal(keys[key], target) != nil {
			p.add(under+key, "must be %s (got %s)", wanted(target), requirements.WithoutCredentials(string(keys[key])))
		}
	}
}

func wanted(target any) string {
	switch target.(type) {
	case *int, *int64:
		return "a whole number"
	case *float64:
		return "a number"
	case *bool:
		return "true or false"
	case *[]string:
		return "a list of texts"
	}
	return "a text"
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
