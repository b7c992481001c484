package boltstore

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
)

func FuzzRecordsOfAnyBytesAreReadOrRefused(f *testing.F) {
	f.Add(appendRecord(nil, 1, opAppend, "x", []byte("body")))
	f.Add(appendRecord(appendRecord(nil, 1, opCreate, "x", []byte("{}")), 2, opDelete, "x", nil))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for r := bytes.NewReader(raw); ; {
			rec, err := readRecord(r)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, errTorn) {
					t.Fatal(err)
				}
				return
			}
			again, err := readRecord(bytes.NewReader(appendRecord(nil, rec.lsn, rec.op, rec.id, rec.body)))
			if err != nil || !reflect.DeepEqual(again, rec) {
				t.Fatalf("record %+v came back as %+v, error %v", rec, again, err)
			}
		}
	})
}

func FuzzChunksOfAnyBytesAreReadOrRefused(f *testing.F) {
	it, err := newItem(executor.Event{Seq: 3, Time: time.Unix(5, 6), Body: text(7, "data")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendBytes(nil, it.raw))
	it, err = newItem(executor.Event{Seq: 4, Body: done})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendBytes(nil, it.raw))
	f.Fuzz(func(t *testing.T, raw []byte) {
		items, err := decodeChunk(raw)
		if err != nil {
			return
		}
		for _, it := range items {
			if _, ok := it.event.Body.(executor.Output); !ok {
				continue
			}
			again, err := encodeEvent(it.event)
			if err != nil {
				t.Fatal(err)
			}
			back, err := decodeEvent(again)
			if err != nil || back.Seq != it.event.Seq || !back.Time.Equal(it.event.Time) {
				t.Fatalf("%+v came back as %+v, error %v", it.event, back, err)
			}
		}
	})
}
