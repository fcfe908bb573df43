package message

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
)

// A Room is the space that a bus has for one message.
type Room struct {
	// Header limits the sum of the sizes of the headers, and Message that sum and the length
	// of the body, in bytes.
	Header, Message int
	// Field returns the size of a header on the bus, and whether the bus can carry it.
	Field func(feed.Field) (size int, ok bool)
}

// DeadLetter returns the message for an entity that the bus does not take: the headers of
// [Header], [DeadReason] and [DeadLength], and the beginning of the body, as much of it as there
// is room for. If the headers do not fit, it leaves out the entity's own ones first. It leaves
// out headers that the bus cannot carry.
func DeadLetter(feedName string, e feed.Entity, room Room) (feed.Header, []byte) {
	all := append(Header(feedName, e),
		feed.Field{Name: DeadReason, Value: e.Dead.Text},
		feed.Field{Name: DeadLength, Value: strconv.FormatInt(cmp.Or(e.Length, int64(len(e.Body))), 10)})
	left := min(room.Header, room.Message)
	keep := make([]bool, len(all))
	reserve := func(i int) {
		if size, ok := room.Field(all[i]); !keep[i] && ok && size <= left {
			keep[i] = true
			left -= size
		}
	}
	// The ID comes first: it keeps the entity from being put there again.
	for _, name := range []string{ContentID, Mark, FeedName, DeadReason, DeadLength, Page} {
		for i := range all {
			if all[i].Name != name || name == ContentID && all[i].Value == "" {
				continue
			}
			if name == ContentID || name == DeadReason || name == Page {
				all[i].Value = clipToRoom(all[i], left, room)
			}
			reserve(i)
			break
		}
	}
	for i := range all {
		reserve(i)
	}
	h := all[:0]
	used := 0
	for i, f := range all {
		if keep[i] {
			size, _ := room.Field(f)
			used += size
			h = append(h, f)
		}
	}
	return h, e.Body[:min(len(e.Body), max(0, room.Message-used))]
}

// clipToRoom returns the value of a field without line breaks, and so much of it as there is
// room for.
func clipToRoom(f feed.Field, left int, room Room) string {
	value := strings.NewReplacer("\r", " ", "\n", " ").Replace(f.Value)
	size, _ := room.Field(feed.Field{Name: f.Name, Value: value})
	if size <= left {
		return value
	}
	return strings.ToValidUTF8(value[:max(0, len(value)-(size-left))], "")
}
