package mcpfrontend

import (
	"context"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// maxKnownFiles is the most files of a Session that are remembered, and maxKnownSessions the most Sessions. Beyond it the
	// time of a file says whether a call has made it.
	maxKnownFiles    = 2000
	maxKnownSessions = 200
	// clockSlack is how much earlier than a moment the kernel may date a file that was written in it: its clock ticks.
	clockSlack = 20 * time.Millisecond
)

// madeFiles knows the files of Sessions, so that those are told which a call has made or changed. They stay in the Session,
// so nothing is copied.
type madeFiles struct {
	mu       sync.Mutex
	sessions map[string]map[string]fileStamp
}

type fileStamp struct {
	size int64
	time time.Time
}

func newMadeFiles() *madeFiles { return &madeFiles{sessions: map[string]map[string]fileStamp{}} }

// opened says that a Session is new: it has no files.
func (m *madeFiles) opened(session string) { m.know(session, map[string]fileStamp{}) }

// forget says that a Session is gone.
func (m *madeFiles) forget(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, session)
}

// know replaces what is known of a Session; nil: nothing is. It returns what was known before.
func (m *madeFiles) know(session string, files map[string]fileStamp) (before map[string]fileStamp) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.sessions[session]
	delete(m.sessions, session)
	if files == nil {
		return before
	}
	for other := range m.sessions {
		if len(m.sessions) < maxKnownSessions {
			break
		}
		delete(m.sessions, other)
	}
	m.sessions[session] = files
	return before
}

// since returns those of list that were made or changed since the list before, or, where that is not known, since the
// moment began (zero: it is not known either, and none is returned).
func (m *madeFiles) since(session string, began time.Time, list []executor.File) []executor.Artifact {
	now := make(map[string]fileStamp, len(list))
	for _, f := range list {
		if !f.Directory {
			now[f.Path] = fileStamp{f.SizeBytes, f.ModTime}
		}
	}
	remember := now
	if len(now) > maxKnownFiles {
		remember = nil
	}
	before := m.know(session, remember)
	var made []executor.Artifact
	for name, stamp := range now {
		old, there := before[name]
		switch {
		case before == nil && (began.IsZero() || stamp.time.Before(began.Add(-clockSlack))):
		case there && old.size == stamp.size && old.time.Equal(stamp.time):
		default:
			made = append(made, executor.Artifact{Path: name, SizeBytes: stamp.size})
		}
	}
	return made
}

// ran reports whether a program has run to its end: what failed behind that is the keeping of its files.
func ran(r executor.Result) bool {
	return r.Failure == nil || r.Failure.Phase == executor.PhaseCollect && (r.ExitCode != nil || r.Signal != "")
}

// artifacts links to what an Execution has left behind.
func artifacts(id string, r executor.Result) []mcp.Content {
	list := fileLinks(executionFiles, id, r.Artifacts)
	if f := r.Failure; f != nil && f.Phase == executor.PhaseCollect {
		list = append(list, mcp.NewTextContent("Not all files that were made were kept: "+f.Message))
	}
	return list
}

// filesOf links to what the Execution o has made: in its Session, where it ran in one, else among its Artifacts.
func (t *tools) filesOf(ctx context.Context, o *outcome) []mcp.Content {
	session := o.session
	if session == "" {
		return artifacts(o.id, o.result)
	}
	if o.result.SessionState == executor.SessionStateLost || o.started == nil {
		return nil
	}
	list, err := t.svc.ListFiles(ctx, session, "", true)
	if err != nil { // it has been closed, or has more files than anybody wants to see
		t.log.Debug("look for files", "session", session, "error", err)
		t.made.forget(session)
		return nil
	}
	return fileLinks(contextFiles, session, t.made.since(session, o.began, list))
}
