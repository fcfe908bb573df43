package admin

import (
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/feedbridge/feedbridge/bridge"
	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// feedStates are the states of the feeds that a member runs. 10,000 names are too long for its note, and the others
// know them: they compute which feeds it runs. So the states are in the order of the names.
type feedStates struct {
	// Names identifies the names, and Codes has a character of stateCodes for each. It is empty if it is too long.
	Names string `json:"names"`
	Codes string `json:"codes,omitempty"`
}

// A code is four times the index of the state in states, plus the index of the attention in attentions. So their order must
// not change, or members of two versions misread each other.
const stateCodes = "abcdefghijklmnopqrstuvwxyz234567"

var attentions = []status.Attention{"", status.NeedsYou, status.Failing, status.Behind}

// stateCode returns the code of a feed.
func stateCode(state bridge.State, attention status.Attention) byte {
	return stateCodes[4*max(slices.Index(states, state), 0)+slices.Index(attentions, attention)]
}

// addName adds the next name to the hash of names.
func addName(names hash.Hash64, name string) { _, _ = io.WriteString(names, name+"\x00") }

func namesSum(names hash.Hash64) string { return fmt.Sprintf("%016x", names.Sum64()) }

// remoteFeed is what another member has published about a feed that it runs. The state is empty if that is not known.
type remoteFeed struct {
	owner     string
	state     bridge.State
	attention status.Attention
	trouble   *status.Trouble // nil if it does not need a person, or is not named
	at        time.Time       // when it was published
}
