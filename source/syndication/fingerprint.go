package syndication

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// instant is a time in nanoseconds since 1970; 0 if it is not known. Impossible years,
// such as the 0001 of servers without data, count as not known.
type instant int64

func instantOf(t time.Time) instant {
	switch {
	case t.Year() < 1970:
		return 0
	case t.Year() > 2261: // the last whole year
		return math.MaxInt64
	}
	return instant(t.UnixNano())
}

// fingerprint describes the version of an entry in a message: enough to compare it with
// the next version. Its stored form is the mark of the message, which has a version
// number.
type fingerprint struct {
	deleted bool
	// updated is the time at which the entry was updated or deleted; 0 if it is not
	// known, as for entries that vanished from a complete feed.
	updated instant
	// document is the update time of the entry's document.
	document instant
	hash     [16]byte
	// page identifies the document.
	page uint32
}

const fingerprintVersion = "1"

func (f fingerprint) String() string {
	state := "p"
	if f.deleted {
		state = "d"
	}
	number := func(t instant) string {
		if t == 0 {
			return ""
		}
		return strconv.FormatInt(int64(t), 10)
	}
	return strings.Join([]string{
		fingerprintVersion, state, number(f.updated), number(f.document), hex.EncodeToString(f.hash[:]), fmt.Sprintf("%08x", f.page),
	}, ";")
}

// parseFingerprint parses the result of [fingerprint.String].
func parseFingerprint(s string) (fingerprint, bool) {
	parts := strings.Split(s, ";")
	if len(parts) != 6 || parts[0] != fingerprintVersion || parts[1] != "p" && parts[1] != "d" {
		return fingerprint{}, false
	}
	m := fingerprint{deleted: parts[1] == "d"}
	for i, at := range []*instant{&m.updated, &m.document} {
		if parts[2+i] == "" {
			continue
		}
		n, err := strconv.ParseInt(parts[2+i], 10, 64)
		if err != nil {
			return fingerprint{}, false
		}
		*at = instant(n)
	}
	if n, err := hex.Decode(m.hash[:], []byte(parts[4][:min(len(parts[4]), 32)])); err != nil || n != len(m.hash) {
		return fingerprint{}, false
	}
	page, err := strconv.ParseUint(parts[5], 16, 32)
	m.page = uint32(page)
	return m, err == nil
}

// hashedKey is a short hash of an ID or a URL.
type hashedKey [16]byte

func hashKey(s string) hashedKey {
	sum := sha256.Sum256([]byte(s))
	return hashedKey(sum[:16])
}

func (k hashedKey) pageNumber() uint32 {
	return uint32(k[0])<<24 | uint32(k[1])<<16 | uint32(k[2])<<8 | uint32(k[3])
}
