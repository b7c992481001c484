package dockerbackend

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// Config is the section backends.<name> of a backend of type docker, as Default fills it and a section changes it.
type Config struct {
	// Host is the daemon: unix://, tcp://, ssh://. Default: empty, which means DOCKER_HOST, else the docker command's
	// context, else the default socket.
	Host string `json:"host"`
	// DefaultImage is the image of requests that name none. Default python:3.12-slim.
	DefaultImage string `json:"default_image"`
	// Images are the images that may be requested ("python", "python:3.*", "registry.example.org/team/*"). * stands for any
	// characters but a slash, ** for any characters, ? for one. A name without a tag matches every tag and digest; "*" alone
	// matches every image of a public registry. DefaultImage is always allowed. Default: the official Python images.
	Images []string `json:"images"`
	// TrustedImages are the images whose preparations get the credentials of package indexes and proxies, in the form of
	// Images. DefaultImage is trusted only if an entry matches it. Default: none.
	TrustedImages []string `json:"trusted_images"`
	// Runtime is the container runtime ("runc", "runsc"). Default: the daemon's own.
	Runtime string `json:"runtime"`
	// Network is the daemon's network for programs that may use one. A named network is used as it is. Default: a bridge of our
	// own, on which private and metadata addresses are blocked where possible. Info warns where they are not.
	Network string `json:"network"`
	// CPUs bounds the CPU time that a program may use, in CPUs. Default 0: all of the daemon's.
	CPUs float64 `json:"cpus"`
	// SilenceSeconds is how long a program runs on without a backend, so that it can be found again after a crash. A Result
	// that is not removed is kept for about as long. Default 60.
	SilenceSeconds int `json:"silence_seconds"`
	// Preload names Python modules that a session imports before it is ready. Missing modules are skipped.
	Preload []string `json:"preload"`
	// Pool sizes the pool of waiting containers.
	Pool PoolConfig `json:"pool"`
	// Prepare says how images with pre_commands and requirements are made.
	Prepare PrepareConfig `json:"prepare"`
}

// PoolConfig sizes the pool of waiting containers. An idle one takes about 10 MB.
type PoolConfig struct {
	// MinIdle is how many containers wait for each kind of request (image, network, disk size) seen so far. Default 2; 0 means
	// that every program starts cold.
	MinIdle int `json:"min_idle"`
	// Max bounds the waiting containers of all kinds together. Those of the least recently used kind are removed first. Default
	// 12.
	Max int `json:"max"`
	// Sessions is how many containers wait for Sessions, per kind. Default 3.
	Sessions int `json:"sessions"`
}

// PrepareConfig says how pre_commands and requirements become an image.
type PrepareConfig struct {
	// IndexURL is the package index. Default: the index that the variables and settings of pip and uv on this host name, else
	// PyPI.
	IndexURL string `json:"index_url"`
	// ExtraIndexURLs are additional package indexes.
	ExtraIndexURLs []string `json:"extra_index_urls"`
	// FindLinks is a folder of this host, or a URL, with packages. A folder is copied to the daemon each time.
	FindLinks string `json:"find_links"`
	// Proxy is the proxy of preparations; programs do not see it. Default: this host's HTTPS_PROXY.
	Proxy string `json:"proxy"`
	// CACert is a file of this host with the certificates that preparations trust, besides the image's own. Default:
	// SSL_CERT_FILE and the settings of pip, else the certificates that this host trusts.
	CACert string `json:"ca_cert"`
	// Runtime is the container runtime of preparations. Default: that of programs (Config.Runtime). Users' pre_commands run in
	// it as root. With AllowBuilds, build code of packages runs in it as well.
	Runtime string `json:"runtime"`
	// Network is the daemon's network of preparations. Default: the daemon's bridge for requirements. pre_commands, which users
	// write, installations after them, and all installations with AllowBuilds use the network of programs (Config.Network), from which
	// package sources at private addresses are not reached.
	Network string `json:"network"`
	// AllowBuilds allows requirements without a wheel, which are built in the preparation's container. Code of packages runs then, with
	// Network. Default: wheels only.
	AllowBuilds bool `json:"allow_builds"`
	// TimeoutSeconds bounds one preparation. Default 900.
	TimeoutSeconds int `json:"timeout_seconds"`
	// MemoryMB and DiskMB bound the memory and disk space of one preparation. Default 2048 and 10240.
	MemoryMB int `json:"memory_mb"`
	DiskMB   int `json:"disk_mb"`
	// CacheBytes bounds the total size of the prepared images. The least recently used are removed first. Default 20 GiB.
	CacheBytes int64 `json:"cache_bytes"`
}

// Default returns the default configuration.
func Default() Config {
	return Config{
		DefaultImage: "python:3.12-slim", Images: []string{"python", "python:*", "python@*"}, TrustedImages: []string{}, SilenceSeconds: 60, Preload: []string{},
		Pool:    PoolConfig{MinIdle: 2, Max: 12, Sessions: 3},
		Prepare: PrepareConfig{ExtraIndexURLs: []string{}, TimeoutSeconds: 900, MemoryMB: 2048, DiskMB: 10240, CacheBytes: 20 << 30},
	}
}

func (c Config) silence() time.Duration { return time.Duration(c.SilenceSeconds) * time.Second }

// validate returns every problem of c by its path in the configuration ("backends.docker.pool.max"), as one error of code
// invalid; nil if there is none. It makes no request to a daemon.
func (c Config) validate(name string) error {
	p := backend.Section(name)
	check := p.Require
	scheme, rest, found := strings.Cut(c.Host, "://")
	check(c.Host == "" || found && rest != "" && slices.Contains([]string{"unix", "tcp", "ssh", "http", "https"}, scheme),
		"host", "must be unix://PATH, tcp://HOST:PORT or ssh://HOST (got %q)", c.Host)
	_, nameErr := imagename.ParseRef(c.DefaultImage)
	check(nameErr == nil, "default_image", "must be the name of an image (got %q)", c.DefaultImage)
	patterns := func(key string, list []string) {
		for i, glob := range list {
			if _, err := imagename.ParsePattern(glob); err != nil {
				p.Add(fmt.Sprintf("%s[%d]", key, i), "%s", err)
			}
		}
	}
	patterns("images", c.Images)
	patterns("trusted_images", c.TrustedImages)
	check(notShared(c.Prepare.Network), "prepare.network", "must not be host or container:… (got %q)", c.Prepare.Network)
	check(notShared(c.Network), "network", "must not be host or container:… (got %q)", c.Network)
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
		check(index == "" && i == 0 || backend.IsURL(index), key, "must be an http or https URL")
	}
	check(c.Prepare.Proxy == "" || backend.IsURL(c.Prepare.Proxy), "prepare.proxy", "must be an http or https URL")
	check(c.Prepare.FindLinks == "" || backend.IsURL(c.Prepare.FindLinks) || filepath.IsAbs(c.Prepare.FindLinks), "prepare.find_links", "must be an absolute path or a URL")
	check(c.Prepare.CACert == "" || filepath.IsAbs(c.Prepare.CACert), "prepare.ca_cert", "must be an absolute path (got %q)", c.Prepare.CACert)
	check(c.Prepare.TimeoutSeconds > 0, "prepare.timeout_seconds", "must be > 0 (got %d)", c.Prepare.TimeoutSeconds)
	check(c.Prepare.MemoryMB >= 64, "prepare.memory_mb", "must be at least 64 (got %d)", c.Prepare.MemoryMB)
	check(c.Prepare.DiskMB >= 64, "prepare.disk_mb", "must be at least 64 (got %d)", c.Prepare.DiskMB)
	check(c.Prepare.CacheBytes > 0, "prepare.cache_bytes", "must be > 0 (got %d)", c.Prepare.CacheBytes)
	return p.Err()
}

func notShared(network string) bool {
	return !strings.HasPrefix(network, "container:") && network != "host"
}

// Check returns the problems of the section of a backend called name. It makes no request to a daemon. Codes: invalid.
func Check(name string, section json.RawMessage) error {
	_, err := parseConfig(name, section)
	return err
}

// Filled returns the section with defaults for the settings that it does not have.
func Filled(section json.RawMessage) json.RawMessage {
	c := Default()
	return backend.Filled(section, &c)
}

// parseConfig reads a plugin's section over the defaults. An unknown key is an error.
func parseConfig(name string, section json.RawMessage) (Config, error) {
	return backend.ParseSection(name, section, Default(), Config.validate)
}
