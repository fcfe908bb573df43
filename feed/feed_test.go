package feed

import (
	"errors"
	"fmt"
	"testing"
)

func TestHeaderGetIgnoresCaseAndTakesTheFirst(t *testing.T) {
	h := Header{{"content-ID", "1"}, {"Content-Id", "2"}, {"Content-Type", "text/plain"}}
	if value, ok := h.Get("Content-ID"); !ok || value != "1" {
		t.Errorf("got %q, %v", value, ok)
	}
	if value, ok := h.Get("Content"); ok {
		t.Errorf("got %q for a name that is not there", value)
	}
}

func TestPermanentKeepsTheErrorAndItsText(t *testing.T) {
	cause := &Violation{Kind: "loop", Page: "http://x/1", Detail: "the links lead in a circle"}
	err := fmt.Errorf("poll: %w", Permanent(cause))
	if !errors.Is(err, ErrPermanent) {
		t.Error("it does not match ErrPermanent")
	}
	var v *Violation
	if !errors.As(err, &v) || v != cause {
		t.Error("the violation is lost")
	}
	if want := "poll: the links lead in a circle (loop on http://x/1)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	if errors.Is(cause, ErrPermanent) {
		t.Error("the cause itself became permanent")
	}
}

func TestSizeCountsBodyHeadersAndPage(t *testing.T) {
	e := Entity{Header: Header{{"A", "bc"}}, Body: []byte("12345"), Page: "p"}
	if got, want := e.Size(), 5+1+1+2+4; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	if got, want := (Batch{Entities: []Entity{e, e}}).Size(), 2*e.Size(); got != want {
		t.Errorf("a batch of two: got %d, want %d", got, want)
	}
}
