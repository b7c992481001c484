package backend

import (
	"errors"

	"github.com/python-executor/python-executor/core/executor"
)

// Level says how much a Finding matters.
type Level string

// The levels.
const (
	// LevelOK means that the thing works.
	LevelOK Level = "ok"
	// LevelWarn means that the thing works with less than there could be.
	LevelWarn Level = "warn"
	// LevelError means that the thing does not work.
	LevelError Level = "error"
)

// Finding is one result of a backend's Doctor.
type Finding struct {
	Level Level `json:"level"`
	// Topic is the subject in one word: "python", "docker", "network", …
	Topic   string `json:"topic"`
	Message string `json:"message"`
	// Remedy says what to do; empty if there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// OK returns the Finding of a thing that works.
func OK(topic, message string) Finding { return Finding{LevelOK, topic, message, ""} }

// Warn returns the Finding of a thing that works with less than there could be.
func Warn(topic, message, remedy string) Finding { return Finding{LevelWarn, topic, message, remedy} }

// Error returns the Finding of a thing that does not work.
func Error(topic, message, remedy string) Finding { return Finding{LevelError, topic, message, remedy} }

// Check returns OK with the message good, or Warn with the message bad and the remedy.
func Check(ok bool, topic, good, bad, remedy string) Finding {
	if ok {
		return OK(topic, good)
	}
	return Warn(topic, bad, remedy)
}

// ConfigFindings returns a Finding for each field that err names, or one for err itself.
func ConfigFindings(err error) []Finding {
	const topic = "configuration"
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || len(e.Fields) == 0 {
		return []Finding{Error(topic, err.Error(), "")}
	}
	var list []Finding
	for _, f := range e.Fields {
		list = append(list, Error(topic, f.Field+": "+f.Message, "correct "+f.Field))
	}
	return list
}
