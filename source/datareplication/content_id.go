package datareplication

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// maxStoredID limits the length of a Content-ID in a cursor, in bytes of JSON. A longer
// one, up to the 64 KiB that a part's header may have, is stored as storedID returns it.
const maxStoredID = 140

// storedID returns the form of a Content-ID that a cursor holds: the ID itself,
// or its beginning and its hash if it is too long. Its results are returned unchanged.
func storedID(id string) string {
	if jsonSize(id) <= maxStoredID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return strings.ToValidUTF8(id[:20], "") + "...sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// jsonSize returns how many bytes text takes in JSON, or some more.
func jsonSize(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < 0x20:
			n += len(`\u0000`) - 1
		case c == '"', c == '\\', c >= 0x80: // U+2028 has three bytes and takes six
			n++
		}
	}
	return n
}

// isStoredID reports whether stored, of a cursor, is the Content-ID id.
func isStoredID(stored, id string) bool { return stored == id || stored == storedID(id) }

// idHashes are hashes of Content-IDs, in the order of the feed. They take the
// place of the IDs in a cursor: 8 bytes each, however long the ID is.
type idHashes []uint64

func hashID(id string) uint64 { return xxhash.Sum64String(storedID(id)) }

func hashIDs(ids []string) idHashes {
	var hashes idHashes
	for _, id := range ids {
		hashes = append(hashes, hashID(id))
	}
	return hashes
}

func (h idHashes) contains(id string) bool { return slices.Contains(h, hashID(id)) }

// lastHashes returns the last n hashes, or all if there are fewer.
func (h idHashes) lastHashes(n int) idHashes { return h[max(0, len(h)-n):] }

// MarshalText returns the hashes in base64.
func (h idHashes) MarshalText() ([]byte, error) {
	var raw []byte
	for _, sum := range h {
		raw = binary.BigEndian.AppendUint64(raw, sum)
	}
	return base64.RawURLEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText reads what MarshalText returned.
func (h *idHashes) UnmarshalText(text []byte) error {
	raw, err := base64.RawURLEncoding.DecodeString(string(text))
	if err != nil || len(raw)%8 != 0 {
		return fmt.Errorf("invalid hashes of Content-IDs %q", text)
	}
	*h = nil
	for ; len(raw) > 0; raw = raw[8:] {
		*h = append(*h, binary.BigEndian.Uint64(raw))
	}
	return nil
}
