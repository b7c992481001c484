package boltstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

// An event on disk is a tag and, for Output, seq, time, offset, the stream's name and the data (base64 would cost a third
// more), for all others the contract's JSON.
const (
	tagOutput = 1
	tagJSON   = 2
	// tagEarlier is tagOutput of an Output that is marked so.
	tagEarlier = 3
)

var errDamaged = errors.New("damaged event")

// item is an Event and its form on disk. Neither is ever changed; an Output's Data lies in raw.
type item struct {
	event executor.Event
	raw   []byte
}

// newItem encodes e and reads it back, so that what followers see now is what they will see after a restart.
func newItem(e executor.Event) (item, error) {
	raw, err := encodeEvent(e)
	if err != nil {
		return item{}, executor.Errorf(executor.Invalid, "the event cannot be stored: %w", err)
	}
	e, err = decodeEvent(raw)
	if err != nil {
		return item{}, executor.Errorf(executor.Invalid, "the event cannot be stored: %w", err)
	}
	return item{e, raw}, nil
}

func encodeEvent(e executor.Event) ([]byte, error) {
	o, ok := e.Body.(executor.Output)
	if !ok {
		body, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		return append([]byte{tagJSON}, body...), nil
	}
	raw := make([]byte, 0, len(o.Data)+len(o.Stream)+4*binary.MaxVarintLen64+1)
	tag := byte(tagOutput)
	if o.Earlier {
		tag = tagEarlier
	}
	raw = append(raw, tag)
	raw = binary.AppendUvarint(raw, e.Seq)
	raw = binary.AppendVarint(raw, e.Time.UnixNano())
	raw = binary.AppendVarint(raw, o.Offset)
	raw = appendBytes(raw, []byte(o.Stream))
	return append(raw, o.Data...), nil
}

// decodeEvent reads what encodeEvent wrote. An Output's Data is a part of raw.
func decodeEvent(raw []byte) (executor.Event, error) {
	if len(raw) == 0 {
		return executor.Event{}, errDamaged
	}
	rest := raw[1:]
	switch raw[0] {
	case tagJSON:
		var e executor.Event
		err := json.Unmarshal(rest, &e)
		return e, err
	case tagOutput, tagEarlier:
		r := reader{rest: rest}
		seq, nanos, offset, stream := r.uvarint(), r.varint(), r.varint(), r.bytes()
		if r.bad {
			return executor.Event{}, errDamaged
		}
		var data []byte
		if len(r.rest) > 0 {
			data = r.rest[:len(r.rest):len(r.rest)]
		}
		body := executor.Output{Stream: executor.Stream(stream), Offset: offset, Data: data, Earlier: raw[0] == tagEarlier}
		return executor.Event{Seq: seq, Time: time.Unix(0, nanos).UTC(), Body: body}, nil
	default:
		return executor.Event{}, fmt.Errorf("%w: tag %d", errDamaged, raw[0])
	}
}

// decodeChunk reads items that stand one behind the other, each with its length before it.
func decodeChunk(chunk []byte) ([]item, error) {
	var items []item
	for r := (reader{rest: chunk}); len(r.rest) > 0; {
		raw := r.bytes()
		if r.bad {
			return nil, errDamaged
		}
		e, err := decodeEvent(raw)
		if err != nil {
			return nil, err
		}
		items = append(items, item{e, raw})
	}
	return items, nil
}

func appendBytes(to, b []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// reader takes numbers and byte strings from rest; bad says that something was missing.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.skip(n)
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) skip(n int) {
	if n <= 0 {
		r.bad, r.rest = true, nil
		return
	}
	r.rest = r.rest[n:]
}

// storedHead is a Record on disk.
type storedHead struct {
	executor.Record
	// LastEventTime keeps times from going back over a restart.
	LastEventTime time.Time `json:"last_event_time,omitzero"`
}

func encodeHead(h *storedHead) ([]byte, error) { return json.Marshal(h) }

// decodeHead reads a head with its Spec in brief. spec is the whole Spec where raw holds more than the brief one: in the
// record of a Create, and in a head that an earlier version wrote.
func decodeHead(raw []byte) (h *storedHead, spec *executor.Spec, err error) {
	h = &storedHead{}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, nil, fmt.Errorf("damaged record: %w", err)
	}
	if size := h.Spec.Size(); size > executor.BriefBytes {
		whole := h.Spec
		spec = &whole
		h.Record, h.SpecBytes = h.Brief(), size
	} else if h.SpecBytes == 0 {
		h.SpecBytes = size
	}
	return h, spec, nil
}

func encodeSpec(s *executor.Spec) ([]byte, error) { return json.Marshal(s) }

func decodeSpec(raw []byte) (executor.Spec, error) {
	var s executor.Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("damaged spec: %w", err)
	}
	return s, nil
}

// eventKey is the key of the chunk that begins with Seq seq.
func eventKey(id string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(eventPrefix(id), seq)
}

// eventPrefix begins the keys of id's chunks. No id holds a zero byte.
func eventPrefix(id string) []byte { return append([]byte(id), 0) }

// seqOf returns the first Seq of the chunk under key, if it is one of id's.
func seqOf(key []byte, id string) (uint64, bool) {
	rest, ok := bytes.CutPrefix(key, eventPrefix(id))
	if !ok || len(rest) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(rest), true
}

func ownerKey(owner, key string) []byte {
	return append(appendBytes(nil, []byte(owner)), key...)
}

// indexValue is what List needs to know of a Record without reading it.
func indexValue(h *storedHead) []byte {
	return append(appendBytes(nil, []byte(h.Status)), h.Owner...)
}

func matchesIndex(value []byte, f executor.Filter) bool {
	r := reader{rest: value}
	status := executor.Status(r.bytes())
	return !r.bad && matches(f, string(r.rest), status)
}
