package engine

import (
	"crypto/rand"
	"encoding/binary"
	"regexp"
	"sync"
	"time"
)

// Ids are "exe_" and 26 letters and digits of Crockford's base 32 in lower case: 48 bits of milliseconds, then 80 random
// bits. They sort by time, and within one process strictly in the order they were made.
const (
	idPrefix   = "exe_"
	idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	idLength   = 26
)

var idForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^exe_[0-9a-hjkmnp-tv-z]{26}$`) })

type idSource struct {
	mu sync.Mutex
	// high and low are the last id: 48 bits of time and 16 random bits, and 64 random bits.
	high, low uint64
}

func (s *idSource) next(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms := uint64(max(0, now.UnixMilli())) & (1<<48 - 1)
	if ms > s.high>>16 {
		var random [10]byte
		_, _ = rand.Read(random[:]) // never fails
		// The top bit stays free, so that counting up within a millisecond never overflows.
		s.high = ms<<16 | uint64(binary.BigEndian.Uint16(random[:2])&0x7fff)
		s.low = binary.BigEndian.Uint64(random[2:])
	} else {
		// The same millisecond, or a clock that was set back: add a random step to the last id, so that the next id cannot be
		// guessed.
		var step [4]byte
		_, _ = rand.Read(step[:])
		before := s.low
		s.low += uint64(binary.BigEndian.Uint32(step[:])) + 1
		if s.low < before {
			s.high++
		}
	}
	return encodeID(s.high, s.low)
}

func encodeID(high, low uint64) string {
	var text [len(idPrefix) + idLength]byte
	copy(text[:], idPrefix)
	for i := len(text) - 1; i >= len(idPrefix); i-- {
		text[i] = idAlphabet[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	return string(text[:])
}
