package datareplication

import (
	"encoding/binary"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/feedbridge/feedbridge/feed"
)

// digest is a hash over the entities before a position, to detect that they have changed.
// It covers ID, operation, time and body. It does not cover the other headers, because
// some producers change their order from answer to answer.
type digest uint64

func (d digest) addEntity(e *feed.Entity) digest {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(d))
	binary.LittleEndian.PutUint64(buf[8:], uint64(e.Modified.Unix()))
	var h xxhash.Digest
	h.Reset()
	_, _ = h.Write(buf[:])
	_, _ = h.WriteString(e.ID)
	_, _ = h.WriteString(string(e.Op))
	_, _ = h.Write(e.Body)
	return digest(h.Sum64())
}

func (d digest) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(d), 16), nil
}

func (d *digest) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*d = digest(n)
	return err
}
