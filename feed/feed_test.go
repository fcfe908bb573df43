package feed

import (
	"errors"
	"fmt"
	"testing"
	"time"
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

func TestRetryAfterKeepsTheErrorAndItsText(t *testing.T) {
	cause := errors.New("no")
	err := fmt.Errorf("poll: %w", RetryAfter(RetryAfter(Permanent(cause), time.Hour), time.Minute))
	if got := RetryDelay(err); got != time.Minute {
		t.Errorf("RetryDelay is %v, want that of the outermost", got)
	}
	if !errors.Is(err, ErrPermanent) || !errors.Is(err, cause) || err.Error() != "poll: no" {
		t.Errorf("the error is %v, and does not match its cause", err)
	}
	if RetryDelay(cause) != 0 || RetryAfter(cause, 0) != cause || RetryAfter(nil, 0) != nil { //nolint:errorlint // the same error, not one that matches
		t.Error("an error without a delay has one")
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
