package sink_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/internal/testkit/must"
	"github.com/feedbridge/feedbridge/internal/testkit/parallel"
	"github.com/feedbridge/feedbridge/sink"
)

// fixedSource returns the same batch, or the same error, at each call.
type fixedSource struct {
	batch    feed.Batch
	err      error
	released int
}

func (s *fixedSource) Next(_ context.Context, _ feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	b := s.batch
	b.Entities = b.Entities[:min(most(limits), len(b.Entities))]
	return b, s.err
}

func (s *fixedSource) Release() { s.released++ }

// gate has a gate in front of one batch with those IDs, behind which the topic
// holds "old", and whose bus takes bodies of three bytes.
func gate(batch feed.Batch) (*sink.Gate, *bytes.Buffer) {
	var log bytes.Buffer
	ids := sink.NewIDs(0)
	ids.Load("old")
	return &sink.Gate{
		Source: &fixedSource{batch: batch},
		IDs:    ids,
		Fits: func(entities []feed.Entity) (int, error) {
			for i, e := range entities {
				switch {
				case e.ID == "unsendable":
					return i, errors.New("it has a header without a name")
				case e.ID == "keyless":
					return i, fmt.Errorf("%w: its body has no value at /id", sink.ErrNoKey)
				case e.ID == "uncarried":
					return i, fmt.Errorf("%w: it has\n no name", sink.ErrHeader)
				case len(e.Body) > 3:
					return i, fmt.Errorf("%w: it has %d bytes and the bus takes 3; raise max", sink.ErrTooLarge, len(e.Body))
				}
			}
			return len(entities), nil
		},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, &log
}

func batchOf(ids ...string) feed.Batch {
	b := feed.Batch{Cursor: feed.Cursor("c"), More: true}
	for _, id := range ids {
		e := feed.Entity{ID: id, Page: "http://x/1"}
		if strings.HasPrefix(id, "large") {
			e.Body = []byte("four")
		}
		b.Entities = append(b.Entities, e)
	}
	return b
}

func idsOf(b feed.Batch) []string {
	var ids []string
	for _, e := range b.Entities {
		ids = append(ids, e.ID)
	}
	return ids
}

// checkSize fails the test unless the size that a batch has is that of its entities.
func checkSize(t *testing.T, b feed.Batch) {
	t.Helper()
	if want := (feed.Batch{Entities: b.Entities}).Size(); b.Size() != want {
		t.Errorf("the size of the batch is %d, want %d", b.Size(), want)
	}
}

func TestGateLeavesOutWhatTheTopicHolds(t *testing.T) {
	t.Parallel()
	in := batchOf("a", "old", "b", "a")
	in.Violations = make([]feed.Violation, 1, 8)
	in.Bytes = in.Size()
	g, _ := gate(in)
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	must.Succeed(t, err)
	checkSize(t, got)
	must.Match(t, "entities", []string{"a", "b"}, idsOf(got))
	if got.Duplicates != 2 || len(got.Violations) != 3 || !got.More || string(got.Cursor) != "c" {
		t.Errorf("batch %+v", got)
	}
	v := got.Violations[1]
	if v.Kind != "repeated_content_id" || v.Page != "http://x/1" || !strings.Contains(v.Detail, `"old"`) {
		t.Errorf("violation %+v", v)
	}
	if diff := cmp.Diff([]string{"a", "old", "b", "a"}, idsOf(in)); diff != "" || in.Violations[:2][1] != (feed.Violation{}) {
		t.Errorf("the source's batch was written to: %s", diff)
	}
}

// The bus would take the beginning of an entity that the source has not read to its end.
func TestGateDecidesAboutACutEntity(t *testing.T) {
	t.Parallel()
	for oversize, want := range map[sink.Oversize]string{sink.Stop: "a", sink.Skip: "a b", sink.DeadLetter: "a cut! b"} {
		in := batchOf("a", "cut", "b")
		in.Entities[1].Length = 9000
		g, log := gate(in)
		g.Oversize = oversize
		got, err := g.Next(t.Context(), nil, feed.Limits{})
		if oversize != sink.Stop && !strings.Contains(log.String(), " size=9000 ") {
			t.Errorf("%s: log %s", oversize, log)
		}
		ids := ""
		for _, e := range got.Entities {
			if ids += " " + e.ID; e.Dead != nil {
				ids += "!"
				if e.Dead.Kind != feed.DeadTooLarge || !strings.Contains(e.Dead.Text, "it has 9000 bytes, which is more than limits.entity") {
					t.Errorf("dead for %+v", e.Dead)
				}
			}
		}
		if strings.TrimSpace(ids) != want || err != nil || (got.Oversized == 1) != (oversize == sink.Skip) {
			t.Errorf("%s: %q, %d left out, %v", oversize, ids, got.Oversized, err)
		}
		if g.Source.(*fixedSource).batch.Entities = in.Entities[1:]; oversize == sink.Stop {
			_, err := g.Next(t.Context(), nil, feed.Limits{})
			if !errors.Is(err, feed.ErrPermanent) || !strings.Contains(fmt.Sprint(err), `entity "cut"`) {
				t.Errorf("error %v", err)
			}
		}
	}
}

func TestGatePassesABatchOnAsItIs(t *testing.T) {
	t.Parallel()
	in := batchOf("a", "b")
	g, _ := gate(in)
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	must.Succeed(t, err)
	if &got.Entities[0] != &in.Entities[0] {
		t.Error("a batch from which nothing is left out was copied")
	}
}

func TestGateMakesDeadLetters(t *testing.T) {
	t.Parallel()
	in := batchOf("a", "large", "keyless", "old", "large", "uncarried", "b")
	g, log := gate(in)
	g.Oversize = sink.DeadLetter
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	must.Succeed(t, err)
	// The second one of that ID is a duplicate, as anywhere else.
	must.Match(t, "entities", []string{"a", "large", "keyless", "uncarried", "b"}, idsOf(got))
	want := []*feed.DeadReason{
		nil,
		{Kind: feed.DeadTooLarge, Text: "the entity is too large for the bus: it has 4 bytes and the bus takes 3; raise max"},
		{Kind: feed.DeadNoKey, Text: "the entity has no key: its body has no value at /id"},
		{Kind: feed.DeadHeader, Text: "the bus cannot carry a header of the entity: it has no name"},
		nil,
	}
	for i, e := range got.Entities {
		must.Match(t, e.ID, want[i], e.Dead)
	}
	if got.Duplicates != 2 || got.Oversized != 0 || len(in.Entities) != 7 {
		t.Errorf("batch %+v", got)
	}
	for _, e := range in.Entities {
		if e.Dead != nil {
			t.Errorf("the source's own entity %s was written to", e.ID)
		}
	}
	if text := log.String(); strings.Count(text, "goes to the dead-letter topic") != 3 || !strings.Contains(text, "reason=no_key") {
		t.Errorf("log:\n%s", text)
	}
}

// An entity without a key is a dead letter where its sink says so, and one that is too large is not.
func TestGateMakesDeadLettersOfKeylessEntitiesOnly(t *testing.T) {
	t.Parallel()
	g, _ := gate(batchOf("keyless", "large"))
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	if err != nil || len(got.Entities) != 1 || got.Entities[0].Dead == nil {
		t.Errorf("batch %+v, %v; want the dead letter before the large entity", got, err)
	}
	g, _ = gate(batchOf("uncarried"))
	if _, err := g.Next(t.Context(), nil, feed.Limits{}); !errors.Is(err, sink.ErrHeader) || !errors.Is(err, feed.ErrPermanent) {
		t.Errorf("error %v", err)
	}
}

func TestGateBoundsTheReasonOfADeadLetter(t *testing.T) {
	t.Parallel()
	g, _ := gate(batchOf("a"))
	g.Oversize = sink.DeadLetter
	g.Fits = func([]feed.Entity) (int, error) {
		return 0, fmt.Errorf("%w: %s", sink.ErrTooLarge, strings.Repeat("ü", 10_000))
	}
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	if err != nil || len([]rune(got.Entities[0].Dead.Text)) > 500 {
		t.Errorf("%v, reason of %d bytes", err, len(got.Entities[0].Dead.Text))
	}
}

// The URL of an entity's page becomes a header of its message.
func TestGateHidesTheSecretsOfPages(t *testing.T) {
	t.Parallel()
	in := batchOf("1", "2", "3", "old")
	in.Entities[1].Page = "https://me:word@x/2?token=abc&page=2"
	in.Entities[2].Page = "https://x/3?ticket=abc&page=3"
	in.Entities = in.Entities[:3]
	in.Bytes = in.Size()
	g, _ := gate(in)
	g.Redact = safetext.NewRedactor("ticket")
	b, err := g.Next(t.Context(), nil, feed.Limits{})
	must.Succeed(t, err)
	checkSize(t, b)
	var pages []string
	for _, e := range b.Entities {
		pages = append(pages, e.Page)
	}
	must.Match(t, "pages", []string{"http://x/1", "https://x/2?token=***&page=2", "https://x/3?ticket=***&page=3"}, pages)
	if in.Entities[1].Page != "https://me:word@x/2?token=abc&page=2" {
		t.Errorf("the source's own entity has the page %s", in.Entities[1].Page)
	}
}

func TestGateStopsAtALargeEntity(t *testing.T) {
	t.Parallel()
	g, _ := gate(batchOf("large", "a"))
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	if !errors.Is(err, sink.ErrTooLarge) || !errors.Is(err, feed.ErrPermanent) {
		t.Fatalf("error %v, want one that matches ErrTooLarge and ErrPermanent", err)
	}
	want := `entity "large" on http://x/1: the entity is too large for the bus: it has 4 bytes and the bus takes 3; raise max, ` +
		`or set "oversize: skip" for this feed to leave such entities out, or "oversize: dead-letter" to keep them in a topic of their own`
	if err.Error() != want {
		t.Errorf("error\n%s\nwant\n%s", err, want)
	}
	if len(got.Entities) != 0 || got.Cursor != nil {
		t.Errorf("the batch was not withheld: %+v", got)
	}
	if !g.IDs.Add("a") {
		t.Error("an entity of the withheld batch counts as held")
	}
}

// most returns the number of entities that a batch may have.
func most(limits feed.Limits) int {
	if limits.Entities == 0 {
		return 100
	}
	return limits.Entities
}

// limitedSource is a feed of entities with those IDs. Its cursor is a number. With other
// set, upstream has that from the second call on.
type limitedSource struct {
	ids, other []string
	calls      int
	check      func()
}

func (s *limitedSource) Next(_ context.Context, after feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	if s.calls++; s.calls > 1 && s.other != nil {
		s.ids = s.other
	}
	if s.check != nil {
		s.check()
	}
	at, _ := strconv.Atoi(string(after))
	end := min(at+most(limits), len(s.ids))
	b := batchOf(s.ids[at:end]...)
	b.Cursor, b.More = feed.Cursor(strconv.Itoa(end)), end < len(s.ids)
	return b, nil
}

func (*limitedSource) Release() {}

func TestGateReturnsWhatIsBeforeAnUnfitEntityFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ids, other []string
		oversize   sink.Oversize
		want       string
		cursor     string
		err        string // of the next call
	}{
		"a large one":                       {ids: []string{"a", "b", "large", "c"}, want: "a b", cursor: "2", err: `entity "large"`},
		"one that cannot be sent":           {ids: []string{"a", "b", "unsendable", "c"}, oversize: sink.Skip, want: "a b", cursor: "2", err: `entity "unsendable"`},
		"large ones are left out before it": {ids: []string{"a", "large", "b", "unsendable"}, oversize: sink.Skip, want: "a b", cursor: "3", err: `entity "unsendable"`},
		"duplicates are left out before it": {ids: []string{"old", "large", "b"}, want: "", cursor: "1", err: `entity "large"`},
		"upstream has another by then":      {ids: []string{"a", "b", "large"}, other: []string{"a", "large2", "c"}, want: "a", cursor: "1", err: `entity "large2"`},
		"upstream has mended it by then":    {ids: []string{"a", "b", "large"}, other: []string{"a", "b", "c"}, want: "a b", cursor: "2"},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			g, _ := gate(feed.Batch{})
			g.Oversize = test.oversize
			src := &limitedSource{ids: test.ids, other: test.other}
			// A source of marked entities leaves out the entities whose marks the topic has.
			// Those of the dropped batch must not be among them.
			src.check = func() {
				if n := g.IDs.Len(); n != 1 {
					t.Errorf("%d IDs are held when the batch is read, want the one of the topic", n)
				}
			}
			g.Source = src
			got, err := g.Next(t.Context(), nil, feed.Limits{})
			must.Succeed(t, err)
			if ids := strings.Join(idsOf(got), " "); ids != test.want || string(got.Cursor) != test.cursor || !got.More {
				t.Errorf("the batch has %q up to %s, more is %v; want %q up to %s, and more", ids, got.Cursor, got.More, test.want, test.cursor)
			}
			src.check = nil
			_, err = g.Next(t.Context(), got.Cursor, feed.Limits{})
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || !errors.Is(err, feed.ErrPermanent)) {
				t.Errorf("then the error is %v, want %q", err, test.err)
			}
		})
	}
}

// changingSource answers each call with the next of its answers, and then with the last
// one. It returns an error at the tenth call, so that a test of it ends.
type changingSource struct {
	answers [][]string
	cut     bool // batches have at most as many entities as was asked for
	calls   int
}

func (s *changingSource) Next(_ context.Context, _ feed.Cursor, limits feed.Limits) (feed.Batch, error) {
	if s.calls++; s.calls == 10 {
		return feed.Batch{}, errors.New("the gate asks without end")
	}
	ids := s.answers[min(s.calls, len(s.answers))-1]
	if s.cut {
		ids = ids[:min(most(limits), len(ids))]
	}
	return batchOf(ids...), nil
}

func (*changingSource) Release() {}

// An upstream that has other entities at each request, all of them with one that the bus
// does not take, is not asked without end.
func TestGateGivesUpOnAChangingUpstream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source changingSource
		calls  int
	}{
		"the unfit entity comes nearer": {changingSource{cut: true, answers: [][]string{{"a", "b", "c", "large"}, {"a", "b", "large"}, {"a", "large"}, {"large"}}}, 4},
		"batches grow":                  {changingSource{answers: [][]string{{"a", "large"}, {"a", "b", "large"}, {"a", "b", "c", "large"}}}, 2},
		"batches are not cut":           {changingSource{answers: [][]string{{"a", "b", "large"}}}, 2},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			g, _ := gate(feed.Batch{})
			g.Source = &test.source
			got, err := g.Next(t.Context(), nil, feed.Limits{})
			if !errors.Is(err, sink.ErrTooLarge) || !errors.Is(err, feed.ErrPermanent) {
				t.Errorf("error %v, want one that matches ErrTooLarge and ErrPermanent", err)
			}
			if len(got.Entities) != 0 || got.Cursor != nil || test.source.calls != test.calls {
				t.Errorf("batch %+v after %d calls of the source, want none after %d", got, test.source.calls, test.calls)
			}
			if n := g.IDs.Len(); n != 1 {
				t.Errorf("%d IDs are held, want the one of the topic", n)
			}
		})
	}
}

func TestGateSkipsLargeEntities(t *testing.T) {
	t.Parallel()
	g, log := gate(batchOf("large1", "a", "large2"))
	g.Oversize = sink.Skip
	got, err := g.Next(t.Context(), nil, feed.Limits{})
	must.Succeed(t, err)
	if diff := cmp.Diff([]string{"a"}, idsOf(got)); diff != "" || got.Oversized != 2 {
		t.Errorf("oversized %d, want 2; entities (-want +got):\n%s", got.Oversized, diff)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 || !strings.Contains(log.String(), "id=large2") {
		t.Errorf("log:\n%s", log)
	}
	if !g.IDs.Add("large1") {
		t.Error("an entity that was skipped counts as held")
	}
}

func TestGateDoesNotSkipWhatIsUnfitForAnotherReason(t *testing.T) {
	t.Parallel()
	g, _ := gate(batchOf("unsendable"))
	g.Oversize = sink.Skip
	if _, err := g.Next(t.Context(), nil, feed.Limits{}); !errors.Is(err, feed.ErrPermanent) || errors.Is(err, sink.ErrTooLarge) {
		t.Errorf("error %v, want a permanent one that does not match ErrTooLarge", err)
	}
}

func TestGatePassesErrorsOn(t *testing.T) {
	t.Parallel()
	g, _ := gate(feed.Batch{})
	boom := errors.New("boom")
	g.Source = &fixedSource{err: boom}
	if _, err := g.Next(t.Context(), nil, feed.Limits{}); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

func TestGateReleasesItsSource(t *testing.T) {
	t.Parallel()
	src := &fixedSource{}
	(&sink.Gate{Source: src}).Release()
	if src.released != 1 {
		t.Errorf("the source was released %d times", src.released)
	}
}
