package executor

import (
	"context"
	"io"
	"iter"
	"time"
)

// Record is an Execution in a Store: its public part, and the fields that only the Engine needs.
type Record struct {
	Execution
	// SpecDigest identifies owner, Spec and input for idempotency; empty without Spec.IdempotencyKey.
	SpecDigest string `json:"spec_digest,omitzero"`
	// WorkspaceBlob and StdinBlob are the keys of the spooled input; empty if none.
	WorkspaceBlob string `json:"workspace_blob,omitzero"`
	StdinBlob     string `json:"stdin_blob,omitzero"`
	// ArtifactsBlob is the key of the tar of Artifacts; empty if none.
	ArtifactsBlob string `json:"artifacts_blob,omitzero"`
	// Cancelled: Cancel was asked for.
	Cancelled bool `json:"cancelled,omitzero"`
	// Relaxed lets Create, Update and Append return before the Store has written the change, until the Append of Finished. A
	// process that is killed may lose the latest of these changes, or the whole Record with its idempotency key. The Store ignores
	// Relaxed where Spec.Durable is set.
	Relaxed bool `json:"relaxed,omitzero"`
	// LogBytes is the size of its log as the Store counts it for retention.
	LogBytes int64 `json:"log_bytes"`
	// SpecBytes is Spec.Size of the whole Spec. The Store sets it.
	SpecBytes int64 `json:"spec_bytes,omitzero"`
}

// Store keeps Executions and their logs. All methods are safe for concurrent use. The rules are ST-… in
// docs/contract.md; core/executor/storetest checks them. A Store knows no owner: the Engine checks.
//
// Every Record that a Store returns has its Spec in brief (Spec.Brief), because a Spec may be as large as an upload. The
// method Spec returns it whole.
type Store interface {
	// Create adds a Record with LastSeq 0, and the first Events of its log as Append does, atomically. If
	// r.Spec.IdempotencyKey is not empty and (Owner, key) exists, nothing is
	// added and the existing Record comes back with created false. If r.Spec.Durable, it is on disk when Create
	// returns, as far as the Store has one. Codes: conflict (the id exists), unavailable, internal.
	Create(ctx context.Context, r Record, events ...Event) (existing Record, created bool, err error)
	// Get returns a copy. Codes: not_found, purged (deleted not long ago).
	Get(ctx context.Context, id string) (Record, error)
	// Spec returns the whole Spec of an Execution, as it was given to Create. Codes: not_found, purged.
	Spec(ctx context.Context, id string) (Spec, error)
	// ByKey returns a copy of the Record that has an idempotency key. Codes: not_found.
	ByKey(ctx context.Context, owner, key string) (Record, error)
	// List returns a page of copies, newest id first. Filter.Limit and MaxPageBytes bound a page, so a page may be shorter
	// than the limit. Only an empty page is the last one.
	List(ctx context.Context, f Filter) ([]Record, error)
	// Update changes the fields that are not folded from Events (blob keys, Cancelled, Backend, Attempts) atomically. The
	// Spec stays as it is. Codes: not_found, purged.
	Update(ctx context.Context, id string, change func(*Record)) (Record, error)
	// Append assigns Seq and Time, folds the Events into the head (Record.Apply) and wakes the followers, atomically.
	// It blocks while the Store cannot take more. Of a Durable Record, Finished is on disk when Append returns; other
	// Events may be a moment behind. Codes: not_found, purged, conflict (after Finished), unavailable.
	Append(ctx context.Context, id string, events ...Event) error
	// Events replays after Seq after, then follows, and ends after Finished or with ctx's error. A follower wakes by
	// notification, not by a timer. An Event stays as it is, unless ctx comes from WithBorrowedData. Codes: not_found, purged.
	Events(ctx context.Context, id string, after uint64) iter.Seq2[Event, error]
	// Delete removes a Record and its log; its followers end with purged. Idempotent.
	Delete(ctx context.Context, id string) error
	SessionStore
	// Close ends the Store; what was appended is on disk. Idempotent.
	Close() error
}

// Blobs keeps byte streams by key. Keys are slash-separated names of [a-z0-9_.-] segments, none of them "." or "..".
type Blobs interface {
	// Put stores r's content under key, whole or not at all, on disk (fsync) if durable. It replaces. max > 0 bounds the
	// size (exhausted). Codes: invalid (key), exhausted, internal.
	Put(ctx context.Context, key string, r io.Reader, max int64, durable bool) (BlobInfo, error)
	// Open returns a Source of the blob: replayable, with size, and Path where it is a local file. Codes: not_found.
	Open(ctx context.Context, key string) (*Source, error)
	// Delete removes it. Idempotent.
	Delete(ctx context.Context, key string) error
	// List calls yield for each blob whose key starts with prefix.
	List(ctx context.Context, prefix string) iter.Seq2[BlobInfo, error]
}

// BlobInfo describes a blob.
type BlobInfo struct {
	Key       string
	SizeBytes int64
	// Digest is "sha256:<hex>", only from Put.
	Digest  string
	ModTime time.Time
}

// Apply folds e, whose Seq and Time are set, into r. Every Store uses it, so that all agree on what a log means.
func (r *Record) Apply(e Event) {
	r.LastSeq = e.Seq
	switch b := e.Body.(type) {
	case Started:
		r.Status = StatusRunning
		r.StartedAt = e.Time
		r.Started = &b
	case Output:
		end := b.Offset + int64(len(b.Data))
		if b.Stream == Stderr {
			r.StderrBytes = max(r.StderrBytes, end)
		} else {
			r.StdoutBytes = max(r.StdoutBytes, end)
		}
	case Finished:
		r.Status = b.Result.Status
		r.FinishedAt = e.Time
		res := b.Result
		// Started may come a little after the start, with the first output.
		if began := e.Time.Add(-res.Phases.Collect - res.Wall); began.Before(r.StartedAt) {
			r.StartedAt = began
		}
		r.Result = &res
	case Queued, Progress, Display, Unknown:
	}
}

// KeepFolded puts back what only Create and Append may set, from the Record before an Update. Every Store calls it after
// Update's change, so that no change can break the fold or the indexes.
func (r *Record) KeepFolded(before Record) {
	r.ID, r.Owner, r.CreatedAt = before.ID, before.Owner, before.CreatedAt
	r.Spec, r.SpecBytes, r.Relaxed = before.Spec, before.SpecBytes, before.Relaxed
	r.Status, r.Started, r.Result = before.Status, before.Started, before.Result
	r.StartedAt, r.FinishedAt = before.StartedAt, before.FinishedAt
	r.StdoutBytes, r.StderrBytes, r.LastSeq, r.LogBytes = before.StdoutBytes, before.StderrBytes, before.LastSeq, before.LogBytes
}

// Check says why a Store cannot take e: it has no Body, or a Finished whose Status is not terminal. Code: invalid.
func (e Event) Check() error {
	if e.Body == nil {
		return Errorf(Invalid, "event without a body")
	}
	if f, ok := e.Body.(Finished); ok && !f.Result.Status.Terminal() {
		return Errorf(Invalid, "finished with status %q, which is not terminal", f.Result.Status)
	}
	return nil
}
