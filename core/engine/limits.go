package engine

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	minCPUShares = 2
	maxCPUShares = 262144
)

// limitRange returns the defaults and the maxima. Zero fields are those of config.Default. A default above its maximum becomes the
// maximum.
func limitRange(r config.LimitRange) (defaults, maxima executor.Limits) {
	documented := config.Default().Limits
	defaults = fillLimits(r.Default.Executor(), documented.Default.Executor())
	maxima = fillLimits(r.Max.Executor(), documented.Max.Executor())
	defaults.Timeout = min(defaults.Timeout, maxima.Timeout)
	defaults.CPUTime = min(defaults.CPUTime, maxima.CPUTime)
	defaults.MemoryBytes = min(defaults.MemoryBytes, maxima.MemoryBytes)
	defaults.DiskBytes = min(defaults.DiskBytes, maxima.DiskBytes)
	defaults.CPUShares = min(defaults.CPUShares, maxima.CPUShares)
	defaults.PIDs = min(defaults.PIDs, maxima.PIDs)
	defaults.KillGrace = min(defaults.KillGrace, maxima.KillGrace)
	if maxima.OutputBytes != executor.Unlimited &&
		(defaults.OutputBytes == executor.Unlimited || defaults.OutputBytes > maxima.OutputBytes) {
		defaults.OutputBytes = maxima.OutputBytes
	}
	return defaults, maxima
}

// fillLimits returns asked with its zero fields taken from defaults.
func fillLimits(asked, defaults executor.Limits) executor.Limits {
	asked.Timeout = cmp.Or(asked.Timeout, defaults.Timeout)
	asked.CPUTime = cmp.Or(asked.CPUTime, defaults.CPUTime)
	asked.MemoryBytes = cmp.Or(asked.MemoryBytes, defaults.MemoryBytes)
	asked.DiskBytes = cmp.Or(asked.DiskBytes, defaults.DiskBytes)
	asked.CPUShares = cmp.Or(asked.CPUShares, defaults.CPUShares)
	asked.PIDs = cmp.Or(asked.PIDs, defaults.PIDs)
	asked.OutputBytes = cmp.Or(asked.OutputBytes, defaults.OutputBytes)
	asked.KillGrace = cmp.Or(asked.KillGrace, defaults.KillGrace)
	return asked
}

// resolveLimits returns the limits of an Execution: those asked for, and defaults for the rest. It records those beyond the maxima.
func (e *Engine) resolveLimits(asked executor.Limits, p *executor.Problems) executor.Limits {
	now := e.now()
	resolved := fillLimits(asked, now.defaultLimits)
	if asked.Timeout == executor.TimeoutMaximum {
		resolved.Timeout = now.maxLimits.Timeout
	} else {
		within(p, "config.timeout_seconds", asked.Timeout.Seconds(), now.maxLimits.Timeout.Seconds(), seconds)
	}
	within(p, "config.cpu_seconds", asked.CPUTime.Seconds(), now.maxLimits.CPUTime.Seconds(), seconds)
	if asked.Timeout == 0 && asked.CPUTime > 0 {
		resolved.Timeout = e.timeFor(resolved)
	}
	within(p, "config.memory_mb", megabytes(asked.MemoryBytes), megabytes(now.maxLimits.MemoryBytes), number)
	within(p, "config.disk_mb", megabytes(asked.DiskBytes), megabytes(now.maxLimits.DiskBytes), number)
	within(p, "config.pids", float64(asked.PIDs), float64(now.maxLimits.PIDs), number)
	within(p, "config.kill_grace_seconds", asked.KillGrace.Seconds(), now.maxLimits.KillGrace.Seconds(), seconds)
	switch {
	case asked.CPUShares != 0 && asked.CPUShares < minCPUShares:
		p.Add("config.cpu_shares", "must be at least %d (got %d)", minCPUShares, asked.CPUShares)
	default:
		within(p, "config.cpu_shares", float64(asked.CPUShares), math.Min(float64(now.maxLimits.CPUShares), maxCPUShares), number)
	}
	switch {
	case now.maxLimits.OutputBytes == executor.Unlimited && asked.OutputBytes >= executor.Unlimited:
	case now.maxLimits.OutputBytes == executor.Unlimited:
		p.Add("config.output_bytes", "must be > 0 (got %d)", asked.OutputBytes)
	default:
		within(p, "config.output_bytes", float64(asked.OutputBytes), float64(now.maxLimits.OutputBytes), number)
	}
	return resolved
}

// timeFor returns the default of l.Timeout that leaves the program time to use l.CPUTime.
func (e *Engine) timeFor(l executor.Limits) time.Duration {
	most := e.now().maxLimits.Timeout
	return max(l.Timeout, executor.TimeoutPerCPU*min(l.CPUTime, most/executor.TimeoutPerCPU))
}

// within records a problem unless got is 0 (not asked for), or positive and at most limit. text formats both.
func within(p *executor.Problems, field string, got, limit float64, text func(float64) string) {
	switch {
	case got < 0:
		p.Add(field, "must be > 0 (got %s)", text(got))
	case got > limit:
		p.Add(field, "must be at most %s (got %s)", text(limit), text(got))
	}
}

func megabytes(n int64) float64 { return float64(n) / (1 << 20) }

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// seconds names the unit, because a frontend may have the field in another one.
func seconds(f float64) string { return number(f) + " s" }

// runAllowance returns how long a started program may run before the Engine stops it. Its backend should have stopped it earlier.
func (e *Engine) runAllowance(l executor.Limits, collects bool) time.Duration {
	allowance := l.Timeout + l.KillGrace + e.deadlines.Stop
	if collects {
		allowance += e.deadlines.Collect
	}
	return allowance
}
