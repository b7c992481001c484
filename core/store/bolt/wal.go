package boltstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The write-ahead log is a row of segment files. A segment is its magic and records:
//
//	length uint32 | crc32c of the payload uint32 | payload: lsn uint64 | op byte | id (uvarint length) | body
//
// lsn counts all records from 1 without gaps, over segments and restarts.
const (
	segmentMagic = "pyexwal1"
	recordHeader = 8
	// maxRecord is beyond anything that is written; a longer length is damage.
	maxRecord = 1 << 30
)

type op byte

const (
	opCreate op = 1 // body: storedHead
	opUpdate op = 2 // body: storedHead
	opAppend op = 3 // body: a chunk of items
	opDelete op = 4 // no body
	// id is a Session's in these two.
	opPutSession    op = 5 // body: executor.SessionRecord as JSON
	opDeleteSession op = 6 // no body
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errTorn    = errors.New("torn record")
)

// segment is one file of the write-ahead log.
type segment struct {
	file   *os.File
	number uint64
	size   int64
	// last is the lsn of its last record.
	last uint64
}

func segmentPath(store string, number uint64) string {
	return fmt.Sprintf("%s.wal.%016x", store, number)
}

// createSegment makes a segment whose name is on disk.
func createSegment(store string, number uint64) (_ *segment, err error) {
	path := segmentPath(store, number)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // beside the store
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(path))
		}
	}()
	if _, err = f.WriteString(segmentMagic); err != nil {
		return nil, err
	}
	if err = f.Sync(); err != nil {
		return nil, err
	}
	if err = syncDir(filepath.Dir(store)); err != nil {
		return nil, err
	}
	return &segment{file: f, number: number, size: int64(len(segmentMagic))}, nil
}

// write adds a record, whole or not at all. fatal says that the segment's end is not known any more.
func (s *segment) write(record []byte, lsn uint64) (fatal bool, err error) {
	if _, err = s.file.WriteAt(record, s.size); err != nil {
		if cutErr := s.file.Truncate(s.size); cutErr != nil {
			return true, errors.Join(err, cutErr)
		}
		return false, err
	}
	s.size += int64(len(record))
	s.last = lsn
	return false, nil
}

func (s *segment) remove() error {
	return errors.Join(s.file.Close(), os.Remove(s.file.Name()))
}

// appendRecord adds a record to buffer.
func appendRecord(buffer []byte, lsn uint64, o op, id string, body []byte) []byte {
	start := len(buffer)
	buffer = append(buffer, make([]byte, recordHeader)...)
	buffer = binary.LittleEndian.AppendUint64(buffer, lsn)
	buffer = append(buffer, byte(o))
	buffer = appendBytes(buffer, []byte(id))
	buffer = append(buffer, body...)
	payload := buffer[start+recordHeader:]
	binary.LittleEndian.PutUint32(buffer[start:], uint32(len(payload))) //nolint:gosec // bounded by what a request may hold
	binary.LittleEndian.PutUint32(buffer[start+4:], crc32.Checksum(payload, castagnoli))
	return buffer
}

// record is one record as it is read back.
type record struct {
	lsn  uint64
	op   op
	id   string
	body []byte
}

// readRecord reads a record; io.EOF at a clean end, errTorn where it was cut or damaged.
func readRecord(r io.Reader) (record, error) {
	var header [recordHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return record{}, errTorn
		}
		return record{}, err
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length < 8+1+1 || length > maxRecord {
		return record{}, errTorn
	}
	// A length that is damage must not cost its memory: what is there is read, not more.
	payload, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err != nil {
		return record{}, err
	}
	if len(payload) != int(length) || crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		return record{}, errTorn
	}
	rest := reader{rest: payload[9:]}
	rec := record{lsn: binary.LittleEndian.Uint64(payload), op: op(payload[8]), id: string(rest.bytes()), body: rest.rest}
	if rest.bad {
		return record{}, errTorn
	}
	return rec, nil
}

// segments returns the numbers of store's segments in order.
func segments(store string) ([]uint64, error) {
	paths, err := os.ReadDir(filepath.Dir(store))
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, entry := range paths {
		if hex, ok := strings.CutPrefix(entry.Name(), filepath.Base(store)+".wal."); ok {
			if number, err := strconv.ParseUint(hex, 16, 64); err == nil {
				numbers = append(numbers, number)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// replaySegment calls apply for each whole record of a segment. torn says that something follows the last whole one.
func replaySegment(path string, apply func(record) error) (torn bool, err error) {
	f, err := os.Open(path) //nolint:gosec // beside the store
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := bufio.NewReaderSize(f, 256<<10)
	magic := make([]byte, len(segmentMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != segmentMagic {
		// A crash between making the file and writing its magic.
		return true, nil
	}
	for {
		rec, err := readRecord(r)
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case errors.Is(err, errTorn):
			return true, nil
		case err != nil:
			return false, err
		}
		if err := apply(rec); err != nil {
			return false, err
		}
	}
}

func syncDir(path string) error {
	dir, err := os.Open(path) //nolint:gosec // the store's folder
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
