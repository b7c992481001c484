package engine

import (
	"context"
	"path/filepath"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/hostpath"
)

// operation is a method of executor.Service, or a Submit of a Spec with a field that needs more.
type operation string

const (
	opAdmit            operation = "Admit"
	opSubmit           operation = "Submit"
	opSubmitInSession  operation = "Submit session"
	opSubmitScript     operation = "Submit script"
	opSubmitDirectory  operation = "Submit host_directory"
	opGet              operation = "Get"
	opList             operation = "List"
	opEvents           operation = "Events"
	opArtifacts        operation = "Artifacts"
	opCancel           operation = "Cancel"
	opOpenSession      operation = "OpenSession"
	opGetSession       operation = "GetSession"
	opListSessions     operation = "ListSessions"
	opInterruptSession operation = "InterruptSession"
	opRestartSession   operation = "RestartSession"
	opCloseSession     operation = "CloseSession"
	opVariables        operation = "Variables"
	opAddRequirements  operation = "AddRequirements"
	opListFiles        operation = "ListFiles"
	opReadFile         operation = "ReadFile"
	opWriteFile        operation = "WriteFile"
	opRemoveFile       operation = "RemoveFile"
	opBackends         operation = "Backends"
	opScripts          operation = "Scripts"
)

// reach says whose Executions or Sessions an operation reaches.
type reach string

const (
	// reachNone: the operation makes something, which is the Principal's, or is about the server.
	reachNone reach = "-"
	// reachOwn: those of the Principal, with ScopeAdmin those of every owner. All others are not found.
	reachOwn reach = "own"
)

// exception is what may stand in for the scope of a right.
type exception string

const (
	noException exception = "-"
	// forSubmitter: ScopeExec is enough for an Execution that the same request has submitted (executor.WithRequest).
	forSubmitter exception = "exec, for what the same request has submitted"
	// openDirectory: ScopeExec is enough for a folder in Options.HostDirectories.
	openDirectory exception = "exec, for a folder in mcp.directories"
)

// right is what one operation needs.
type right struct {
	scope  executor.Scope
	reach  reach
	unless exception
}

// rights says what a Principal may do. Nothing else in the server judges that. docs/contract.md shows the table.
var rights = map[operation]right{
	opAdmit:            {executor.ScopeExec, reachNone, noException},
	opSubmit:           {executor.ScopeExec, reachNone, noException},
	opSubmitInSession:  {executor.ScopeExec, reachOwn, noException},
	opSubmitScript:     {executor.ScopeScripts, reachNone, noException},
	opSubmitDirectory:  {executor.ScopeTrusted, reachNone, openDirectory},
	opGet:              {executor.ScopeRead, reachOwn, forSubmitter},
	opList:             {executor.ScopeRead, reachOwn, noException},
	opEvents:           {executor.ScopeRead, reachOwn, forSubmitter},
	opArtifacts:        {executor.ScopeRead, reachOwn, noException},
	opCancel:           {executor.ScopeExec, reachOwn, noException},
	opOpenSession:      {executor.ScopeExec, reachNone, noException},
	opGetSession:       {executor.ScopeRead, reachOwn, noException},
	opListSessions:     {executor.ScopeRead, reachOwn, noException},
	opInterruptSession: {executor.ScopeExec, reachOwn, noException},
	opRestartSession:   {executor.ScopeExec, reachOwn, noException},
	opCloseSession:     {executor.ScopeExec, reachOwn, noException},
	opVariables:        {executor.ScopeExec, reachOwn, noException},
	opAddRequirements:  {executor.ScopeExec, reachOwn, noException},
	opListFiles:        {executor.ScopeRead, reachOwn, noException},
	opReadFile:         {executor.ScopeRead, reachOwn, noException},
	opWriteFile:        {executor.ScopeExec, reachOwn, noException},
	opRemoveFile:       {executor.ScopeExec, reachOwn, noException},
	opBackends:         {executor.ScopeRead, reachNone, noException},
	opScripts:          {executor.ScopeScripts, reachNone, noException},
}

// grant is a Principal that may do an operation.
type grant struct {
	executor.Principal
	reach reach
}

// authorize returns the Principal in ctx if it may do op. id is the Execution that op is about, if any. Codes: denied.
func authorize(ctx context.Context, op operation, id string) (grant, error) {
	p, r := executor.PrincipalFrom(ctx), rights[op]
	allowed := p.Has(r.scope) || r.unless == forSubmitter && p.Has(executor.ScopeExec) && executor.HasSubmitted(ctx, id)
	if !allowed {
		return grant{}, executor.Errorf(executor.Denied, "this needs the scope %q", r.scope)
	}
	return grant{p, r.reach}, nil
}

// may reports whether g reaches what an owner has.
func (g grant) may(owner string) bool {
	return g.reach == reachOwn && (owner == g.Owner || g.Has(executor.ScopeAdmin))
}

// listed returns the owner whose things g lists; "" means everybody's.
func (g grant) listed() string {
	if g.reach == reachOwn && g.Has(executor.ScopeAdmin) {
		return ""
	}
	return g.Owner
}

// authorizeSubmit is authorize for a Submit of s. A script needs its own scope instead of ScopeExec. Codes: denied, with the fields
// that are.
func (e *Engine) authorizeSubmit(ctx context.Context, s executor.Spec) (grant, error) {
	p := executor.PrincipalFrom(ctx)
	if s.Script == "" || !p.Has(rights[opSubmitScript].scope) {
		op := opSubmit
		if s.Session != "" {
			op = opSubmitInSession
		}
		if _, err := authorize(ctx, op, ""); err != nil {
			return grant{}, err
		}
	}
	var denied executor.Problems
	field := func(name string, op operation, allowed bool) {
		if !allowed && !p.Has(rights[op].scope) {
			denied.Add(name, "needs the scope %q", rights[op].scope)
		}
	}
	field("host_directory", opSubmitDirectory, s.HostDirectory == "" ||
		rights[opSubmitDirectory].unless == openDirectory && p.Has(executor.ScopeExec) && e.isOpenDirectory(s.HostDirectory))
	field("script", opSubmitScript, s.Script == "")
	return grant{Principal: p}, denied.Err(executor.Denied, "submit", "; ")
}

// isOpenDirectory reports whether dir is a folder below one of Options.HostDirectories. A path with a link in it is not, because it may
// lead out. Backends follow no link in a Spec.HostDirectory, so what they open later really lies there, too.
func (e *Engine) isOpenDirectory(dir string) bool {
	if _, _, ok := hostpath.Below(dir, e.now().hostDirectories); !ok || filepath.Clean(dir) != dir {
		return false
	}
	root, err := hostpath.OpenRoot(dir)
	return err == nil && root.Close() == nil
}

// realDirectory returns dir without links, for a Principal that may use every folder. It stays as it is where it does not exist.
func realDirectory(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); dir != "" && err == nil {
		return real
	}
	return dir
}
