package sqlitestore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/python-executor/python-executor/core/executor"
)

// Versions before SQLite kept Executions in bbolt, with a log beside the file that a clean stop removed. The format's
// number is the last letter of formerFormat; in format 1 every head holds its whole Spec.
const (
	formerFormat = "python-executor "
	// boltMagic is what a bbolt file has at boltMagicAt.
	boltMagic   = 0xED0CDAED
	boltMagicAt = 16
)

// errDamaged is in the error of a former file that cannot be read.
var errDamaged = errors.New("the file is damaged")

// reading calls read, which reads a former file. bbolt trusts its file: it panics if the file is damaged, and faults if the file is too
// short.
func reading(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	err = read()
	if errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) || errors.Is(err, bolterrors.ErrVersionMismatch) {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// openFormer opens a former file, and locks it.
func openFormer(path string) (db *bolt.DB, err error) {
	var file *os.File
	err = reading(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, OpenFile: func(path string, flag int, mode os.FileMode) (*os.File, error) {
			file, err = os.OpenFile(path, flag, mode)
			return file, err
		}})
		return err
	})
	if err != nil && file != nil {
		// Open lets go of nothing if it panics. Its mapping of the file keeps the lock, too.
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) //nolint:gosec // a descriptor is small
		_ = file.Close()
	}
	return db, err
}

// keepFormer keeps the file at path under a second name beside it, and returns that name. It never takes the name of another file:
// that may be the former file of an earlier conversion.
func keepFormer(path string) (string, error) {
	file, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	name := path + ".former"
	for n := 2; ; n++ {
		err := os.Link(path, name)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		if other, err := os.Stat(name); err == nil && os.SameFile(file, other) {
			return name, nil // a conversion was cut short behind this
		}
		name = fmt.Sprintf("%s.former.%d", path, n)
	}
}

// isFormer reports whether a former version wrote the file at path.
func isFormer(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = f.ReadAt(magic[:], boltMagicAt)
	return err == nil && binary.NativeEndian.Uint32(magic[:]) == boltMagic
}

// convert replaces the file of a former version by a database with the same content. The former file is kept beside it. A
// conversion that is cut short begins anew at the next Open.
func convert(path string, o Options) error {
	if logs, err := filepath.Glob(path + ".wal.*"); err != nil || len(logs) > 0 {
		return errors.Join(err, errors.New("a former version wrote it and was not stopped cleanly: "+
			"start that version once more with the same data_dir, stop it with SIGTERM, and then start this version"))
	}
	from, err := openFormer(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // It was only read.
	fresh := path + ".converting"
	for _, left := range []string{fresh, fresh + "-wal", outputDir(fresh), outputDir(path)} {
		if err := os.RemoveAll(left); err != nil {
			return err
		}
	}
	to, err := Open(fresh, o)
	if err != nil {
		return err
	}
	err = reading(func() error { return from.View(to.takeOver) })
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	if err := os.Rename(outputDir(fresh), outputDir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	former, err := keepFormer(path)
	if err != nil {
		return err
	}
	// After a return to the former version, logs of a database that is gone may lie here. SQLite would add them to the new one.
	for _, left := range []string{path + "-wal", path + "-shm", path + "-journal"} {
		if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	if o.Log != nil {
		o.Log.Warn("the store has a new format; remove the former file when it is not needed any more", "file", former)
	}
	return o.sync(filepath.Dir(path))
}

// takeOver copies what a former version stored.
func (s *Store) takeOver(tx *bolt.Tx) error {
	buckets := map[string]*bolt.Bucket{}
	for _, name := range []string{"meta", "heads", "specs", "events", "purged", "sessions"} {
		if buckets[name] = tx.Bucket([]byte(name)); buckets[name] == nil {
			return fmt.Errorf("%w: no bucket %q", errDamaged, name)
		}
	}
	switch found := string(buckets["meta"].Get([]byte("format"))); found {
	case formerFormat + "1", formerFormat + "2":
	default:
		return fmt.Errorf("unknown format %q", found)
	}
	err := buckets["heads"].ForEach(func(id, raw []byte) error {
		e := &entry{id: string(id), n: s.lastNumber.Add(1), spec: buckets["specs"].Get(id)}
		if err := s.takeOverExecution(e, raw, buckets["events"].Cursor()); err != nil {
			return fmt.Errorf("execution %s: %w", id, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.transact(func() error {
		err := buckets["purged"].ForEach(func(id, _ []byte) error {
			return s.exec("INSERT INTO purged (id) VALUES (?)", string(id))
		})
		return errors.Join(err, buckets["sessions"].ForEach(func(_, raw []byte) error {
			var r executor.SessionRecord
			err := json.Unmarshal(raw, &r)
			if err == nil {
				_, err = s.putSession(r)
			}
			return err
		}))
	})
	return err
}

// takeOverExecution copies an Execution with its log. raw is its head.
func (s *Store) takeOverExecution(e *entry, raw []byte, events *bolt.Cursor) error {
	c := change{head: &head{}}
	if err := json.Unmarshal(raw, c.head); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if size := c.head.Spec.Size(); size > executor.BriefBytes { // format 1
		var err error
		if e.spec, err = encode(c.head.Spec); err != nil {
			return err
		}
		c.head.Record, c.head.SpecBytes = c.head.Brief(), size
	}
	if c.head.LastSeq == 0 { // A kill came before its first Event, which is written with the Record today.
		if err := s.fold(e, &c, []executor.Event{{Body: executor.Queued{}}}); err != nil {
			return err
		}
	}
	if _, err := s.save(e, c); err != nil {
		return err
	}
	prefix := append([]byte(e.id), 0)
	for key, chunk := events.Seek(prefix); bytes.HasPrefix(key, prefix); key, chunk = events.Next() {
		c.rows, c.events = nil, nil
		for r := bytes.NewReader(chunk); r.Len() > 0; {
			event, err := readFormer(r)
			if err != nil {
				return fmt.Errorf("%w: %w", errDamaged, err)
			}
			if err := s.add(e, &c, event); err != nil {
				return err
			}
		}
		if _, err := s.save(e, c); err != nil {
			return err
		}
	}
	return s.syncOutput(e.n)
}

// readFormer reads the next Event of a chunk: its length, and then a tag and JSON, or a tag and the fields of an Output.
func readFormer(chunk *bytes.Reader) (event executor.Event, err error) {
	raw, err := readBytes(chunk)
	if err != nil || len(raw) == 0 {
		return event, errors.Join(err, errors.New("an event cannot be read"))
	}
	const document, earlier = 2, 3
	if raw[0] == document {
		return event, json.Unmarshal(raw[1:], &event)
	}
	r := bytes.NewReader(raw[1:])
	seq, errSeq := binary.ReadUvarint(r)
	nanos, errTime := binary.ReadVarint(r)
	offset, errOffset := binary.ReadVarint(r)
	stream, errStream := readBytes(r)
	body := executor.Output{Stream: executor.Stream(stream), Offset: offset, Data: raw[len(raw)-r.Len():], Earlier: raw[0] == earlier}
	return executor.Event{Seq: seq, Time: time.Unix(0, nanos).UTC(), Body: body}, errors.Join(errSeq, errTime, errOffset, errStream)
}

// readBytes reads a length and as many bytes.
func readBytes(r *bytes.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil || n > uint64(r.Len()) {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}
