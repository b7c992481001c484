package jobs

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/python-executor/python-executor/core/backend"
	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

// Config is the section backends.<name>.job, as Default fills it and a section changes it.
type Config struct {
	// Datacenters are where jobs may run; * stands for any characters. Default: all.
	Datacenters []string `json:"datacenters"`
	// NodePool is the node pool of the jobs. Default: that of the namespace.
	NodePool string `json:"node_pool"`
	// Constraints narrow the nodes of the jobs: "ATTRIBUTE OPERATOR VALUE" each, such as "${node.class} = python".
	Constraints []string `json:"constraints"`
	// Priority is the priority of the jobs, 1 to 100. Default 50.
	Priority int `json:"priority"`
	// DefaultImage is the image of requests that name none. Default python:3.12-slim.
	DefaultImage string `json:"default_image"`
	// Images are the images that may be requested, in the form of the Docker backend. DefaultImage is always allowed. Default: the
	// official Python images.
	Images []string `json:"images"`
	// Work is where the folders of programs are: disk or memory. On disk nothing bounds them, and a request for disk_mb is refused. In
	// memory disk_mb bounds them, and no file in them can be executed: Nomad's driver cannot express more. Default disk.
	Work string `json:"work"`
	// PurgeAfterSeconds is how long an ended job stays visible in Nomad. Default 300.
	PurgeAfterSeconds int `json:"purge_after_seconds"`
	// QueueTimeoutSeconds is how long a job may wait for a place in the cluster. Default 300.
	QueueTimeoutSeconds int `json:"queue_timeout_seconds"`
	// LostAfterSeconds is how long Nomad waits for a node that is out of reach before it gives up the job there. Default 600.
	LostAfterSeconds int `json:"lost_after_seconds"`
	// MaxJobs bounds the jobs at once. Each needs a connection to the agent, which allows 100 of one host by default
	// (http_max_conns_per_client). Default 64.
	MaxJobs int `json:"max_jobs"`
	// Transfer is where Nomad's clients fetch the runner and the input of jobs.
	Transfer TransferConfig `json:"transfer"`
	// Prepare says how pre_commands are run and requirements are installed.
	Prepare PrepareConfig `json:"prepare"`
}

// The values of Config.Work.
const (
	WorkOnDisk   = "disk"
	WorkInMemory = "memory"
)

// TransferConfig says where Nomad's clients fetch the runner and the input of jobs.
type TransferConfig struct {
	// Listen is the address of the listener, HOST:PORT. Default 127.0.0.1:0, which serves clients on this host only.
	Listen string `json:"listen"`
	// URL is the listener's address as the clients see it. Default: http:// and the address of Listen.
	URL string `json:"url"`
}

// PrepareConfig says how pre_commands are run and requirements are installed.
type PrepareConfig struct {
	// IndexURL is the package index. Default: the index that the variables and settings of pip and uv on this host name, else PyPI.
	IndexURL string `json:"index_url"`
	// CACert is a file of this host with the certificates that preparations trust, besides the image's own. Default: SSL_CERT_FILE
	// and the settings of pip, else the certificates that this host trusts.
	CACert string `json:"ca_cert"`
	// AllowBuilds allows requirements without a wheel, whose build runs their code. The code reaches what the node reaches, private and
	// metadata addresses included. Default: wheels only.
	AllowBuilds bool `json:"allow_builds"`
	// TimeoutSeconds bounds one preparation. Default 900.
	TimeoutSeconds int `json:"timeout_seconds"`
	// MemoryMB and DiskMB bound the memory and disk space of one preparation. Default 2048 and 10240.
	MemoryMB int `json:"memory_mb"`
	DiskMB   int `json:"disk_mb"`
}

// Default returns the default configuration.
func Default() Config {
	return Config{
		Datacenters: []string{"*"}, Constraints: []string{}, Priority: 50, DefaultImage: "python:3.12-slim",
		Images: []string{"python", "python:*", "python@*"}, PurgeAfterSeconds: 300, QueueTimeoutSeconds: 300,
		Work: WorkOnDisk, LostAfterSeconds: 600, MaxJobs: 64,
		Transfer: TransferConfig{Listen: "127.0.0.1:0"}, Prepare: PrepareConfig{TimeoutSeconds: 900, MemoryMB: 2048, DiskMB: 10240},
	}
}

func (c Config) lostAfter() time.Duration { return time.Duration(c.LostAfterSeconds) * time.Second }
func (c Config) queueTimeout() time.Duration {
	return time.Duration(c.QueueTimeoutSeconds) * time.Second
}
func (c Config) purgeAfter() time.Duration { return time.Duration(c.PurgeAfterSeconds) * time.Second }

// Validate adds the problems of c to p. under is the path of c with a dot at its end. It makes no request.
func (c Config) Validate(p *backend.Problems, under string) {
	check := func(ok bool, key, format string, args ...any) { p.Require(ok, under+key, format, args...) }
	check(len(c.Datacenters) > 0 && !slices.Contains(c.Datacenters, ""), "datacenters", `must be a list of names, or ["*"]`)
	for i, text := range c.Constraints {
		check(len(strings.Fields(text)) >= 2, fmt.Sprintf("constraints[%d]", i), "must be ATTRIBUTE OPERATOR VALUE (got %q)", text)
	}
	check(c.Priority >= 1 && c.Priority <= 100, "priority", "must be from 1 to 100 (got %d)", c.Priority)
	_, err := imagename.ParseRef(c.DefaultImage)
	check(err == nil, "default_image", "must be the name of an image (got %q)", c.DefaultImage)
	for i, text := range c.Images {
		if _, err := imagename.ParsePattern(text); err != nil {
			p.Add(fmt.Sprintf("%simages[%d]", under, i), "%s", err)
		}
	}
	check(c.Work == WorkOnDisk || c.Work == WorkInMemory, "work", "must be disk or memory (got %q)", c.Work)
	check(c.PurgeAfterSeconds >= 0 && c.PurgeAfterSeconds <= 86400, "purge_after_seconds", "must be from 0 to 86400 (got %d)", c.PurgeAfterSeconds)
	check(c.QueueTimeoutSeconds >= 1 && c.QueueTimeoutSeconds <= 86400, "queue_timeout_seconds", "must be from 1 to 86400 (got %d)", c.QueueTimeoutSeconds)
	check(c.LostAfterSeconds >= 1 && c.LostAfterSeconds <= 86400, "lost_after_seconds", "must be from 1 to 86400 (got %d)", c.LostAfterSeconds)
	check(c.MaxJobs >= 1 && c.MaxJobs <= 10000, "max_jobs", "must be from 1 to 10000 (got %d)", c.MaxJobs)
	_, _, err = net.SplitHostPort(c.Transfer.Listen)
	check(err == nil, "transfer.listen", "must be HOST:PORT (got %q)", c.Transfer.Listen)
	check(c.Transfer.URL == "" || backend.IsURL(c.Transfer.URL), "transfer.url", "must be an http or https URL")
	check(c.Prepare.IndexURL == "" || backend.IsURL(c.Prepare.IndexURL), "prepare.index_url", "must be an http or https URL")
	check(c.Prepare.CACert == "" || filepath.IsAbs(c.Prepare.CACert), "prepare.ca_cert", "must be an absolute path (got %q)", c.Prepare.CACert)
	check(c.Prepare.MemoryMB >= 64, "prepare.memory_mb", "must be at least 64 (got %d)", c.Prepare.MemoryMB)
	check(c.Prepare.DiskMB >= 64, "prepare.disk_mb", "must be at least 64 (got %d)", c.Prepare.DiskMB)
	check(c.Prepare.TimeoutSeconds > 0, "prepare.timeout_seconds", "must be > 0 (got %d)", c.Prepare.TimeoutSeconds)
}
