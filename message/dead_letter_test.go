package message_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/message"
)

// room has space for so many bytes, and carries no header whose name begins with a !.
func room(header, all int) message.Room {
	return message.Room{Header: header, Message: all, Field: func(f feed.Field) (int, bool) {
		return len(f.Name) + len(f.Value), !strings.HasPrefix(f.Name, "!")
	}}
}

func dead() feed.Entity {
	return feed.Entity{
		ID: "<1@x>", Op: feed.Put, Page: "http://x/1", Mark: "v1;a",
		Header: feed.Header{
			{Name: "X-Large", Value: strings.Repeat("x", 1000)},
			{Name: "!", Value: "refused"},
			{Name: "content-id", Value: "<1@x>"},
			{Name: "X-Small", Value: "y"},
		},
		Body: []byte(strings.Repeat("0123456789", 100)),
		Dead: &feed.DeadReason{Kind: feed.DeadTooLarge, Text: "too large"},
	}
}

func names(h feed.Header) (all []string) {
	for _, f := range h {
		all = append(all, f.Name)
	}
	return all
}

func TestDeadLetterKeepsWhatThereIsRoomFor(t *testing.T) {
	t.Parallel()
	ours := []string{message.Operation, message.FeedName, message.Page, message.Mark, message.Names, message.DeadReason, message.DeadLength}
	for name, test := range map[string]struct {
		room message.Room
		want []string
		cut  bool // the body is
	}{
		"all":                       {room(1<<20, 1<<20), slices.Concat([]string{"X-Large", "Content-ID", "X-Small", "Operation-Type"}, ours), false},
		"a part of the body":        {room(1<<20, 1500), slices.Concat([]string{"X-Large", "Content-ID", "X-Small", "Operation-Type"}, ours), true},
		"no room for a header":      {room(500, 1<<20), slices.Concat([]string{"Content-ID", "X-Small", "Operation-Type"}, ours), false},
		"a header or the body":      {room(1<<20, 400), slices.Concat([]string{"Content-ID", "X-Small", "Operation-Type"}, ours), true},
		"room for the ID and marks": {room(60, 60), []string{"Content-ID", message.FeedName, message.Mark}, true},
		"no room at all":            {room(0, 0), nil, true},
		"less than none":            {room(-10, -10), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, body := message.DeadLetter("orders", dead(), test.room)
			must.Match(t, "headers", test.want, names(h))
			size := len(body)
			for _, f := range h {
				n, _ := test.room.Field(f)
				size += n
			}
			if test.cut && size != max(0, test.room.Message) || !test.cut && len(body) != 1000 {
				t.Errorf("a body of %d bytes in a message of %d; room for %d", len(body), size, test.room.Message)
			}
		})
	}
}

// An empty Content-ID before the one that counts takes the room of neither.
func TestDeadLetterKeepsTheIDThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	e := dead()
	e.Header = append(feed.Header{{Name: message.ContentID}}, e.Header...)
	h, _ := message.DeadLetter("orders", e, room(20, 20))
	if id := message.ID(h); id != e.ID {
		t.Errorf("ID %q of %v, want %q", id, h, e.ID)
	}
}

// Values that are too long lose their end, and line breaks.
func TestDeadLetterClipsIDAndPage(t *testing.T) {
	t.Parallel()
	e := dead()
	e.Header = nil
	e.ID, e.Page = "a\r\n"+strings.Repeat("ü", 500), "p"
	h, _ := message.DeadLetter("orders", e, room(100, 100))
	id, _ := h.Get(message.ContentID)
	if want := "a  " + strings.Repeat("ü", 43); id != want {
		t.Errorf("ID %q, want %q", id, want)
	}
	if _, ok := h.Get(message.Page); ok {
		t.Error("there is a page, and was no room for it")
	}
}
