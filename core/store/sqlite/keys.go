package sqlitestore

// ownerKey is an owner's idempotency key.
type ownerKey struct{ owner, key string }

// claimKey takes the idempotency key of h, if it has one, for an Execution that is not in the database yet. releaseKey ends the claim.
// existing is the id of another Execution that has the key; h has it if existing is empty. The database itself refuses a second Execution
// with a key, so only a Record that is written later needs to look there.
func (s *Store) claimKey(h *head) (existing string, err error) {
	k := ownerKey{h.Owner, h.Spec.IdempotencyKey}
	if k.key == "" {
		return "", nil
	}
	s.mu.Lock()
	existing, claimed := s.keys[k]
	if !claimed {
		s.keys[k] = h.ID
	}
	s.mu.Unlock()
	if claimed || !h.relaxed() {
		return existing, nil
	}
	if existing, err = s.savedKey(k); err != nil || existing != "" {
		s.releaseKey(h)
	}
	return existing, err
}

// releaseKey ends the claim of h, which is in the database by then, or will not be.
func (s *Store) releaseKey(h *head) {
	k := ownerKey{h.Owner, h.Spec.IdempotencyKey}
	if k.key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[k] == h.ID {
		delete(s.keys, k)
	}
}

// idOfKey returns the id of the Execution that has an idempotency key, empty if there is none. A claim ends only when the database has the
// Execution, so the claims come first.
func (s *Store) idOfKey(owner, key string) (string, error) {
	k := ownerKey{owner, key}
	s.mu.Lock()
	id, claimed := s.keys[k]
	s.mu.Unlock()
	if claimed {
		return id, nil
	}
	return s.savedKey(k)
}

// savedKey is idOfKey for the database alone.
func (s *Store) savedKey(k ownerKey) (id string, err error) {
	s.dbLock.Lock()
	defer s.dbLock.Unlock()
	_, err = s.one("SELECT id FROM executions WHERE owner = ? AND idempotency_key = ?", []any{k.owner, k.key}, []any{&id})
	return id, err
}
