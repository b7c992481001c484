package backendtest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/backendtest"
	"github.com/python-executor/python-executor/core/executor/fake"
	"github.com/python-executor/python-executor/core/executor/plugintest"
)

// sessionCapabilities returns the Capabilities of the fake with Sessions in every language.
func sessionCapabilities() executor.Capabilities {
	caps := fake.DefaultCapabilities()
	caps.Sessions = true
	caps.Languages = []executor.Language{executor.LanguagePython, executor.LanguageJavaScript, executor.LanguageShell}
	return caps
}

// sessionRuleIDs returns the ids of the rules of Sessions and of the watched rules.
func sessionRuleIDs() []string {
	var ids []string
	for _, r := range backendtest.Rules() {
		if strings.HasPrefix(r[0], "SE-") || strings.HasPrefix(r[0], "EV-") || strings.HasPrefix(r[0], "BE-9") {
			ids = append(ids, r[0])
		}
	}
	return ids
}

// TestTheFakeKeepsTheLawOfSessions runs the rules of Sessions in three lanes, without and with Attach. With Attach a Session
// outlives its Backend.
func TestTheFakeKeepsTheLawOfSessions(t *testing.T) {
	for name, attach := range map[string]bool{"they end with the backend": false, "they outlive the backend": true} {
		t.Run(name, func(t *testing.T) {
			caps := sessionCapabilities()
			caps.Attach = attach
			section, err := json.Marshal(fake.Section{Capabilities: &caps})
			if err != nil {
				t.Fatal(err)
			}
			var last *fake.Backend
			options := fakeOptions()
			options.Leftovers = func() []string {
				if last == nil {
					return nil // the process lane's are in another process
				}
				return append(last.Sessions(), last.Running()...)
			}
			for _, r := range backendtest.Rules() {
				watched := strings.HasPrefix(r[0], "EV-") || strings.HasPrefix(r[0], "BE-9")
				// With Attach only the rules that depend on Attach run again.
				if watched || !attach && strings.HasPrefix(r[0], "SE-") || slices.Contains([]string{"SE-01", "SE-02", "SE-43", "SE-44", "SE-45", "SE-46", "SE-47", "BE-82", "BE-85"}, r[0]) {
					options.Only = append(options.Only, r[0])
				}
			}
			backendtest.Run(t, backendtest.Harness{
				New: func(*testing.T) executor.Backend {
					last = fake.New(fake.Options{Capabilities: &caps})
					return last
				},
				Abandon: func(*testing.T) executor.Backend {
					last = last.Abandon()
					return last
				},
				Process: func(t *testing.T) *plugintest.Plugin {
					last = nil
					return plugintest.Process(t, "fake", section)
				},
				Lanes:   []backendtest.LaneRules{{Lane: backendtest.LaneDirect}, {Lane: backendtest.LaneWire}, backendtest.SecondProcess},
				Virtual: true,
				Options: options,
			})
		})
	}
}
