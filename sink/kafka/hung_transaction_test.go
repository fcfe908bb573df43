package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// How a transaction that hangs with epoch 6 has ended.
func TestOutcomeOfAHangingTransaction(t *testing.T) {
	t.Parallel()
	const unknown = "unknown"
	for _, test := range []struct {
		state    string
		epoch    int16 // of the transactional id now
		version2 bool
		want     string
	}{
		{"CompleteCommit", 7, true, "commit"},
		{"CompleteCommit", 8, true, unknown}, // the outcome of the one before the last is unknown
		{"CompleteCommit", 6, false, "commit"},
		{"CompleteCommit", 7, false, unknown}, // another client's, which may have aborted it
		{"CompleteAbort", 7, true, "abort"},
		{"CompleteAbort", 6, false, unknown}, // the last was aborted, those before were not
		{"CompleteAbort", 8, true, unknown},
		{"Empty", 7, true, "abort"},
		{"Empty", 9, false, "abort"},
		{"Empty", 6, false, unknown},
		{"PrepareCommit", 7, true, unknown},
		{"Ongoing", 6, true, unknown},
	} {
		how, known := outcomeOf(&kadm.DescribedTransaction{State: test.state, ProducerEpoch: test.epoch}, 6, test.version2, false)
		got := string(how)
		if !known {
			got = unknown
		}
		if got != test.want {
			t.Errorf("%s, epoch %d, version 2 %v: %s, want %s", test.state, test.epoch, test.version2, got, test.want)
		}
	}
}

// It was committed if its checkpoint is.
func TestOutcomeOfAHangingTransactionWhoseCheckpointStands(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{"CompleteCommit": true, "CompleteAbort": true, "Empty": true, "PrepareCommit": false, "PrepareAbort": false, "Ongoing": false} {
		how, known := outcomeOf(&kadm.DescribedTransaction{State: state, ProducerEpoch: 9}, 6, true, true)
		if known != want || known && how != committed {
			t.Errorf("%s: %v, known %v, want %v", state, how, known, want)
		}
	}
	c := committer{1, 6}
	for _, test := range []struct {
		cp   storedCheckpoint
		want bool
	}{
		{storedCheckpoint{by: c, byBefore: committer{1, 5}}, true},
		{storedCheckpoint{by: c, byBefore: c}, false}, // of version 1, and either may hang
		{storedCheckpoint{by: committer{2, 6}}, false},
	} {
		if got := test.cp.committedBy(c); got != test.want {
			t.Errorf("%+v was committed by %+v: %v, want %v", test.cp, c, got, test.want)
		}
	}
}
