package executor

import (
	"context"
	"time"
)

// SessionStatus is where a Session stands.
type SessionStatus string

// The session statuses.
const (
	SessionUnknown SessionStatus = ""
	SessionActive  SessionStatus = "active"
	SessionLost    SessionStatus = "lost"
	SessionClosed  SessionStatus = "closed"
)

// Session is a Sandbox that outlives an Execution. Until its backends exist every method answers unimplemented.
type Session struct {
	// ID is "ctx-" and a UUIDv4.
	ID          string        `json:"id"`
	Owner       string        `json:"owner"`
	Name        string        `json:"name"`
	Description string        `json:"description,omitzero"`
	Language    Language      `json:"language"`
	Backend     string        `json:"backend"`
	Status      SessionStatus `json:"status"`
	// Reason says why it is lost or closed.
	Reason    string    `json:"reason,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	LastUsed  time.Time `json:"last_used,omitzero"`
	// Spec holds what is fixed for its life: requirements, python version, limits, network.
	Spec Spec `json:"spec"`
}

// Sessions is the part of Service about Sessions.
type Sessions interface {
	// OpenSession creates one. Codes: invalid, exhausted, unavailable, unimplemented.
	OpenSession(ctx context.Context, s Session) (Session, error)
	// GetSession returns the present state. Codes: not_found.
	GetSession(ctx context.Context, id string) (Session, error)
	// ListSessions returns all of the owner's, newest first.
	ListSessions(ctx context.Context) ([]Session, error)
	// RestartSession forgets the interpreter's state and keeps the files. Codes: not_found, unavailable.
	RestartSession(ctx context.Context, id string) (Session, error)
	// CloseSession ends it. Idempotent. Codes: not_found.
	CloseSession(ctx context.Context, id string) (Session, error)
}

// SessionBackend is what a Backend with Capabilities.Sessions also implements.
type SessionBackend interface {
	// OpenSession starts a sandbox; the handle is what AdoptSession needs. Codes: invalid, unavailable, unimplemented.
	OpenSession(ctx context.Context, s Session) (handle []byte, err error)
	// AdoptSession takes over a sandbox that outlived its plugin. Codes: not_found, unimplemented.
	AdoptSession(ctx context.Context, s Session, handle []byte) error
	// RestartSession restarts the interpreter. Codes: not_found.
	RestartSession(ctx context.Context, id string) error
	// CloseSession ends the sandbox. Idempotent.
	CloseSession(ctx context.Context, id string) error
}
