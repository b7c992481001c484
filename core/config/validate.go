package config

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

var (
	nameForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	moduleForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	sha256Form = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Validate reports every problem of c, not only the first: nil, or an *executor.Error of code invalid whose Fields are
// the problems by path, in the order of the file, and whose message has one problem per line
// ("limits.max.memory_mb: must be > 0 (got -1)"). It looks at nothing but c. A plugin's own section is the plugin's.
func (c Config) Validate() error {
	var p problems
	c.HTTP.validate(&p)
	if c.DataDir == "" {
		p.add("data_dir", "must be set")
	}
	c.validateBackends(&p)
	p.atLeast("engine.max_concurrent", c.Engine.MaxConcurrent, 1)
	p.atLeast("engine.max_queued", c.Engine.MaxQueued, 0)
	p.atLeast("engine.max_per_owner", c.Engine.MaxPerOwner, 0)
	p.notNegative("engine.drain_timeout_seconds", c.Engine.DrainTimeoutSeconds)
	c.Limits.validate(&p)
	p.notNegative("retention.max_age_seconds", c.Retention.MaxAgeSeconds)
	p.atLeast("retention.max_executions", c.Retention.MaxExecutions, 0)
	p.notNegative("retention.max_bytes", float64(c.Retention.MaxBytes))
	c.Sessions.validate(&p)
	c.MCP.validate(&p, c.HTTP)
	c.Scripts.validate(&p)
	return p.err()
}

func (h HTTP) validate(p *problems) {
	host, _, err := net.SplitHostPort(h.Bind)
	switch {
	case err != nil:
		p.add("http.bind", "must be host:port (got %q)", h.Bind)
	case !Loopback(host) && len(h.Tokens) == 0 && !h.AllowUnauthenticated:
		p.add("http.bind", "%s is not loopback: set http.tokens, or http.allow_unauthenticated (--allow-unauthenticated) to let everybody in", h.Bind)
	}
	if h.MaxBodyBytes <= 0 {
		p.add("http.max_body_bytes", "must be > 0 (got %d)", h.MaxBodyBytes)
	}
	if h.MaxBufferedBytes < minBuffered {
		p.add("http.max_buffered_bytes", "must be at least %d (got %d)", minBuffered, h.MaxBufferedBytes)
	}
	seen := map[string]int{}
	for i, t := range h.Tokens {
		at := fmt.Sprintf("http.tokens[%d]", i)
		if t.Owner == "" {
			p.add(at+".owner", "must be set")
		}
		if !sha256Form.MatchString(t.SHA256) {
			p.add(at+".sha256", "must be 64 lower-case hex digits, the SHA-256 of the token")
		} else if first, twice := seen[t.SHA256]; twice {
			p.add(at+".sha256", "is the same as http.tokens[%d].sha256", first)
		} else {
			seen[t.SHA256] = i
		}
		for j, s := range t.Scopes {
			if !slices.Contains(executor.Scopes(), executor.Scope(s)) {
				p.add(fmt.Sprintf("%s.scopes[%d]", at, j), "must be one of exec, read, admin, scripts, trusted (got %q)", s)
			}
		}
	}
}

// Loopback reports whether host, a name or an address without port, can be reached from this machine only. An empty
// host means every address.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (c Config) validateBackends(p *problems) {
	names := make([]string, 0, len(c.Backends))
	for name := range c.Backends {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		p.add("backends", "must have at least one entry")
	} else if _, ok := c.Backends[c.Backend]; !ok {
		p.add("backend", "must name an entry of backends: %s (got %q)", strings.Join(names, ", "), c.Backend)
	}
	for _, name := range names {
		b, at := c.Backends[name], "backends."+name
		if !nameForm.MatchString(name) {
			p.add(at, "the name must be lower-case letters, digits, - and _ (at most 63)")
		}
		if (b.Path == "") != (b.SHA256 == "") {
			p.add(at, "path and sha256 go together: both or none")
		}
		if b.SHA256 != "" && !sha256Form.MatchString(b.SHA256) {
			p.add(at+".sha256", "must be 64 lower-case hex digits, the SHA-256 of the file")
		}
	}
}

func (l LimitRange) validate(p *problems) {
	l.Default.validate(p, "limits.default")
	l.Max.validate(p, "limits.max")
	pairs := []struct {
		key           string
		standard, max float64
	}{
		{"timeout_seconds", l.Default.TimeoutSeconds, l.Max.TimeoutSeconds},
		{"memory_mb", float64(l.Default.MemoryMB), float64(l.Max.MemoryMB)},
		{"disk_mb", float64(l.Default.DiskMB), float64(l.Max.DiskMB)},
		{"cpu_shares", float64(l.Default.CPUShares), float64(l.Max.CPUShares)},
		{"pids", float64(l.Default.PIDs), float64(l.Max.PIDs)},
		{"output_bytes", float64(l.Default.OutputBytes), float64(l.Max.OutputBytes)},
		{"kill_grace_seconds", l.Default.KillGraceSeconds, l.Max.KillGraceSeconds},
	}
	for _, pair := range pairs {
		if pair.max > 0 && pair.standard > pair.max {
			p.add("limits.default."+pair.key, "must be <= limits.max.%s, %s (got %s)", pair.key, number(pair.max), number(pair.standard))
		}
	}
}

// minBuffered is the largest JSON body that the HTTP API takes.
const minBuffered = 32 << 20

// The largest numbers that survive the conversion to the contract's units.
const (
	maxSeconds = 1e9
	maxMB      = 1 << 40
)

func (l Limits) validate(p *problems, at string) {
	p.within(at+".timeout_seconds", l.TimeoutSeconds, maxSeconds)
	p.within(at+".memory_mb", float64(l.MemoryMB), maxMB)
	p.within(at+".disk_mb", float64(l.DiskMB), maxMB)
	if l.CPUShares < 2 || l.CPUShares > 262144 {
		p.add(at+".cpu_shares", "must be between 2 and 262144 (got %d)", l.CPUShares)
	}
	p.within(at+".pids", float64(l.PIDs), maxMB)
	p.within(at+".output_bytes", float64(l.OutputBytes), 1<<60)
	p.within(at+".kill_grace_seconds", l.KillGraceSeconds, maxSeconds)
}

func (s Sessions) validate(p *problems) {
	p.atLeast("sessions.max", s.Max, 0)
	p.atLeast("sessions.max_per_owner", s.MaxPerOwner, 0)
	p.atLeast("sessions.max_waiting", s.MaxWaiting, 0)
	p.within("sessions.idle_timeout_seconds", s.IdleTimeoutSeconds, maxSeconds)
	p.upTo("sessions.evict_idle_seconds", s.EvictIdleSeconds, maxSeconds)
	p.within("sessions.max_life_seconds", s.MaxLifeSeconds, maxSeconds)
	p.within("sessions.max_file_bytes", float64(s.MaxFileBytes), 1<<60)
	p.upTo("sessions.keep_closed_seconds", s.KeepClosedSeconds, maxSeconds)
	for i, name := range s.Preload {
		if !moduleForm.MatchString(name) {
			p.add(fmt.Sprintf("sessions.preload[%d]", i), "must be the name of a Python module, like numpy or os.path (got %q)", name)
		}
	}
}

type problems []executor.FieldError

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, executor.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (p *problems) atLeast(field string, got, least int) {
	if got < least {
		p.add(field, "must be >= %d (got %d)", least, got)
	}
}

func (p *problems) notNegative(field string, got float64) {
	if got < 0 || math.IsNaN(got) {
		p.add(field, "must be >= 0 (got %s)", number(got))
	}
}

func (p *problems) within(field string, got, most float64) {
	switch {
	case got <= 0 || math.IsNaN(got):
		p.add(field, "must be > 0 (got %s)", number(got))
	case got > most:
		p.add(field, "must be <= %s (got %s)", number(most), number(got))
	}
}

func (p *problems) upTo(field string, got, most float64) {
	if p.notNegative(field, got); got > most {
		p.add(field, "must be <= %s (got %s)", number(most), number(got))
	}
}

// number writes f as people do: 99999999, not 9.9999999e+07.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Field + ": " + problem.Message
	}
	return &executor.Error{Code: executor.Invalid, Message: strings.Join(lines, "\n"), Fields: p}
}
