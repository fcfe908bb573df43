package message_test

import (
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/message"
)

func TestParseOperation(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]feed.Operation{
		"http-equiv=PUT": feed.Put, "PUT": feed.Put, "put": feed.Put, `http-equiv="PUT"`: feed.Put, `"http-equiv=DELETE"`: feed.Delete,
		"HTTP-EQUIV = Patch": feed.Patch, " http-equiv= delete\t": feed.Delete, `"PATCH"`: feed.Patch, `http-equiv=" PUT "`: feed.Put,
		"POST": "", "http-equiv=POST": "", "PUT; x=y": "", "": "", `"`: "", `""`: "", "=PUT": "", "equiv=PUT": "", "http-equiv=http-equiv=PUT": "",
		"PU": "", "PUTT": "", "P\u017fT": "",
	} {
		if got, ok := message.ParseOperation(in); got != want || ok != (want != "") {
			t.Errorf("ParseOperation(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
}

func TestParseDateReportsWrongWeekdays(t *testing.T) {
	t.Parallel()
	usual := time.Date(2023, 10, 5, 3, 0, 13, 0, time.UTC)
	for in, wrong := range map[string]bool{
		"Thu, 05 Oct 2023 03:00:13 GMT":    false,
		"Thu, 5 Oct 2023 03:00:13 GMT":     false,
		"Thursday, 05-Oct-23 03:00:13 GMT": false,
		"Thu Oct  5 03:00:13 2023":         false,
		"05 Oct 2023 03:00:13 GMT":         false,
		"2023-10-05T03:00:13Z":             false,
		"Fri, 06 Oct 2023 01:00:13 +2200":  false, // the weekday of the time zone
		"Fri, 05 Oct 2023 03:00:13 GMT":    true,
		"Fri, 5 Oct 2023 03:00:13 GMT":     true,
		"Friday, 05-Oct-23 03:00:13 GMT":   true,
		"Fri Oct  5 03:00:13 2023":         true,
		"uhT, 05 Oct 2023 03:00:13 GMT":    true,
	} {
		got, wrongWeekday, ok := message.ParseDate(in)
		if !ok || !got.Equal(usual) || wrongWeekday != wrong {
			t.Errorf("ParseDate(%q) = %v, %v, %v", in, got, wrongWeekday, ok)
		}
	}
}
