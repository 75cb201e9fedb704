package web

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"braid/node"
)

// hashed is a password as PBKDF2 with HMAC-SHA-256 (RFC 8018).
type hashed struct {
	Iterations int    `json:"pbkdf2_sha256_iterations"`
	Salt       []byte `json:"salt"`
	Key        []byte `json:"key"`
}

// iterations makes a check of a password take about a tenth of a second.
const iterations = 600_000

func hash(password string, iterations int) *hashed {
	h := &hashed{Iterations: iterations, Salt: make([]byte, 16)}
	_, _ = rand.Read(h.Salt) // never fails
	h.Key = h.derive(password)
	return h
}

func (h *hashed) derive(password string) []byte {
	key, err := pbkdf2.Key(sha256.New, password, h.Salt, h.Iterations, sha256.Size)
	if err != nil { // only for keys of absurd lengths
		panic(err)
	}
	return key
}

func (h *hashed) matches(password string) bool {
	return subtle.ConstantTimeCompare(h.derive(password), h.Key) == 1
}

func (h *hashed) equal(o *hashed) bool {
	if h == nil || o == nil {
		return h == o
	}
	return string(h.Salt) == string(o.Salt) && string(h.Key) == string(o.Key)
}

// readHash reads the file of writeHash. It returns nil if there is none.
func readHash(file string) (*hashed, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	h := &hashed{}
	err = json.Unmarshal(b, h)
	right := 1 <= h.Iterations && h.Iterations <= 100*iterations && len(h.Key) == sha256.Size
	if err != nil || !right { // a damaged file must not open the server to everybody
		return nil, fmt.Errorf("the file %s is damaged: delete it, and set the password again",
			file)
	}
	return h, nil
}

// writeHash writes the hash to the file, or deletes the file if the hash is nil.
func writeHash(file string, h *hashed) error {
	if h == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("delete the password: %w", err)
		}
		return nil
	}
	b, err := json.Marshal(h)
	if err == nil {
		err = node.ReplaceSecret(file, b)
	}
	if err != nil {
		return fmt.Errorf("keep the password: %w", err)
	}
	return nil
}
