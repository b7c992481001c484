package engine

import (
	"math"
	"strconv"
	"time"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
)

const (
	leastCPUShares = 2
	mostCPUShares  = 262144
)

// limitRange returns the defaults and the maxima, zero fields filled from the documented ones; a default above its
// maximum is the maximum.
func limitRange(r config.LimitRange) (standard, most executor.Limits) {
	documented := config.Default().Limits
	standard = fillLimits(toLimits(r.Default), toLimits(documented.Default))
	most = fillLimits(toLimits(r.Max), toLimits(documented.Max))
	standard.Timeout = min(standard.Timeout, most.Timeout)
	standard.MemoryBytes = min(standard.MemoryBytes, most.MemoryBytes)
	standard.DiskBytes = min(standard.DiskBytes, most.DiskBytes)
	standard.CPUShares = min(standard.CPUShares, most.CPUShares)
	standard.PIDs = min(standard.PIDs, most.PIDs)
	standard.KillGrace = min(standard.KillGrace, most.KillGrace)
	if most.OutputBytes != executor.Unlimited &&
		(standard.OutputBytes == executor.Unlimited || standard.OutputBytes > most.OutputBytes) {
		standard.OutputBytes = most.OutputBytes
	}
	return standard, most
}

func toLimits(l config.Limits) executor.Limits { return l.Executor() }

// fillLimits returns asked with its zero fields taken from standard.
func fillLimits(asked, standard executor.Limits) executor.Limits {
	fill(&asked.Timeout, standard.Timeout)
	fill(&asked.MemoryBytes, standard.MemoryBytes)
	fill(&asked.DiskBytes, standard.DiskBytes)
	fill(&asked.CPUShares, standard.CPUShares)
	fill(&asked.PIDs, standard.PIDs)
	fill(&asked.OutputBytes, standard.OutputBytes)
	fill(&asked.KillGrace, standard.KillGrace)
	return asked
}

func fill[T comparable](field *T, standard T) {
	var zero T
	if *field == zero {
		*field = standard
	}
}

// resolveLimits returns what an Execution gets: what was asked for within the maxima, and the defaults for the rest.
func (e *Engine) resolveLimits(asked executor.Limits, p *problems) executor.Limits {
	resolved := fillLimits(asked, e.standard)
	if asked.Timeout == executor.TimeoutMaximum {
		resolved.Timeout = e.most.Timeout
	} else {
		p.within("config.timeout_seconds", asked.Timeout.Seconds(), e.most.Timeout.Seconds())
	}
	p.within("config.memory_mb", megabytes(asked.MemoryBytes), megabytes(e.most.MemoryBytes))
	p.within("config.disk_mb", megabytes(asked.DiskBytes), megabytes(e.most.DiskBytes))
	p.within("config.pids", float64(asked.PIDs), float64(e.most.PIDs))
	p.within("config.kill_grace_seconds", asked.KillGrace.Seconds(), e.most.KillGrace.Seconds())
	switch {
	case asked.CPUShares != 0 && asked.CPUShares < leastCPUShares:
		p.add("config.cpu_shares", "must be at least %d (got %d)", leastCPUShares, asked.CPUShares)
	default:
		p.within("config.cpu_shares", float64(asked.CPUShares), math.Min(float64(e.most.CPUShares), mostCPUShares))
	}
	switch {
	case e.most.OutputBytes == executor.Unlimited && asked.OutputBytes >= executor.Unlimited:
	case e.most.OutputBytes == executor.Unlimited:
		p.add("config.output_bytes", "must be > 0 (got %d)", asked.OutputBytes)
	default:
		p.within("config.output_bytes", float64(asked.OutputBytes), float64(e.most.OutputBytes))
	}
	return resolved
}

// within records a problem unless got is 0 (not asked for) or positive and at most most.
func (p *problems) within(field string, got, most float64) {
	switch {
	case got < 0:
		p.add(field, "must be > 0 (got %s)", number(got))
	case got > most:
		p.add(field, "must be at most %s (got %s)", number(most), number(got))
	}
}

func megabytes(n int64) float64 { return float64(n) / (1 << 20) }

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// runAllowance is how long the Engine lets a started program be before it steps in for its backend.
func (e *Engine) runAllowance(l executor.Limits, collects bool) time.Duration {
	allowance := l.Timeout + l.KillGrace + e.deadlines.Stop
	if collects {
		allowance += e.deadlines.Collect
	}
	return allowance
}
