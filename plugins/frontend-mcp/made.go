package mcpfrontend

import (
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// ran reports whether a program has run to its end: what failed behind that is the keeping of its files.
func ran(r executor.Result) bool {
	return r.Failure == nil || r.Failure.Phase == executor.PhaseCollect && (r.ExitCode != nil || r.Signal != "")
}

// artifacts links to what an Execution has left behind.
func artifacts(id string, r executor.Result) []mcp.Content {
	list := fileLinks(executionFiles, id, r.Artifacts, 0)
	if f := r.Failure; f != nil && f.Phase == executor.PhaseCollect {
		list = append(list, mcp.NewTextContent("Not all files that were made were kept: "+f.Message))
	}
	return list
}

// filesOf links to what the Execution o has made: in its Session, where it ran in one, else among its Artifacts.
func filesOf(o *outcome) []mcp.Content {
	switch {
	case o.session == "":
		return artifacts(o.id, o.result)
	case o.result.SessionState == executor.SessionStateLost: // its files may go at any time
		return nil
	}
	return fileLinks(contextFiles, o.session, o.result.FilesChanged, o.result.FilesOmitted)
}
