package mcpfrontend

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

// The messages of the specification of the toolset contexts. They have their facts in the text, as the specification prescribes.
// "AgentRun" is the name of this program instead.

// logStart logs what is offered.
func (t *tools) logStart() {
	names := make([]string, len(t.offered.tools))
	for i, offered := range t.offered.tools {
		names[i] = offered.Tool.Name
	}
	t.log.Info("Server initialization complete", "toolsets", t.config.Toolsets)
	if t.config.has(ToolsetContexts) {
		t.log.Info("Supported languages: " + strings.Join(t.contextLanguages(), ", "))
	}
	t.log.Info(fmt.Sprintf("Available tools: %d (%s)", len(names), strings.Join(names, ", ")))
}

// contextLanguages returns the names of the languages that a context may have.
func (t *tools) contextLanguages() []string {
	can := t.backend().Capabilities.Languages
	var names []string
	for _, l := range []executor.Language{executor.LanguagePython, executor.LanguageJavaScript} {
		if len(can) == 0 || slices.Contains(can, l) {
			names = append(names, languageName(l))
		}
	}
	return names
}

// logRun logs that code is about to run in a context. It logs nothing about a context that does not exist.
func (c contexts) logRun(ctx context.Context, id string) {
	if !c.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	if language := c.language(ctx, id); language != executor.LanguageDefault {
		c.log.Info(fmt.Sprintf("Executing code in context %s (language: %s)", id, language), "session", id)
	}
}

// language returns the language of a context, or LanguageDefault if there is no such context, which the call itself reports.
func (c contexts) language(ctx context.Context, id string) executor.Language {
	language, ok := c.known.get(id)
	if id == "" || ok {
		return language
	}
	s, err := c.svc.GetSession(ctx, id)
	if err != nil || s.Status != executor.SessionActive {
		return executor.LanguageDefault
	}
	c.known.set(id, s.Language)
	return s.Language
}

// maxKnown bounds the contexts whose language is remembered.
const maxKnown = 1000

// knownLanguages remembers the languages of contexts, so that a call need not ask for them.
type knownLanguages struct {
	mu sync.Mutex
	of map[string]executor.Language
}

func (k *knownLanguages) get(id string) (executor.Language, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.of[id]
	return l, ok
}

func (k *knownLanguages) set(id string, l executor.Language) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil || len(k.of) >= maxKnown {
		k.of = map[string]executor.Language{}
	}
	k.of[id] = l
}

func (k *knownLanguages) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, id)
}
