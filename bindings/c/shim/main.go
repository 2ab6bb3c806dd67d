// Lets the conformance runner drive the C ABI, from Go: requests and answers are JSON lines. The protocol stands
// in tests/conformance/README.md.
package main

/*
#include <polylatch.h>
*/
import "C"

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// request is all that any verb needs.
type request struct {
	ID      uint64         `json:"id"`
	Op      string         `json:"op"`
	Client  string         `json:"client"`
	URL     string         `json:"url"`
	Guard   string         `json:"guard"`
	Lock    string         `json:"lock"`
	Locks   []string       `json:"locks"`
	Mode    *mode          `json:"mode"`
	Options map[string]any `json:"options"`
	Token   uint64         `json:"token"`
	By      string         `json:"by"`
	Reason  string         `json:"reason"`
	Target  uint64         `json:"target"`
	LeaseMs int64          `json:"lease_ms"`
}

// call is a request that is under way.
type call struct {
	cancel    *C.PlCancel
	triggered bool
}

// shim knows what the requests made. Its guards and clients live as long as the process.
type shim struct {
	sync.Mutex
	clients map[string]*C.PlClient
	users   map[string]unsafe.Pointer
	guards  map[string]held
	running map[uint64]*call
	out     sync.Mutex
}

func (s *shim) client(r *request) (*C.PlClient, error) {
	s.Lock()
	defer s.Unlock()
	if client := s.clients[r.Client]; client != nil {
		return client, nil
	}
	return nil, fmt.Errorf("there is no client %q", r.Client)
}

func (s *shim) guard(r *request) (held, error) {
	s.Lock()
	defer s.Unlock()
	if held, known := s.guards[r.Guard]; known {
		return held, nil
	}
	return held{}, fmt.Errorf("there is no guard %q", r.Guard)
}

func (s *shim) keep(r *request, held held) any {
	s.Lock()
	defer s.Unlock()
	s.guards[r.Guard] = held
	return held.shown()
}

var nothing = map[string]any{}

func (s *shim) serve(r *request, cancel *C.PlCancel) (any, error) {
	switch r.Op {
	case "connect":
		return s.connect(r)
	case "name":
		// In C, the call that acquires names the lock, so there is nothing to keep.
		_, err := s.client(r)
		return nothing, err
	case "acquire", "try":
		return s.acquire(r, cancel)
	case "lock_all", "try_all":
		return s.acquireAll(r, cancel)
	case "told":
		s.Lock()
		defer s.Unlock()
		return map[string]any{"events": heard.of(s.users[r.Client], r.Lock)}, nil
	case "see", "break", "stats", "close":
		client, err := s.client(r)
		if err != nil {
			return nil, err
		}
		switch r.Op {
		case "see":
			return see(r, client)
		case "break":
			return breakLease(r, client)
		case "stats":
			return stats(client)
		default:
			var err *C.PlError
			return nothing, done(C.pl_client_close(client, &err), err)
		}
	}
	held, err := s.guard(r)
	if err != nil {
		return nil, err
	}
	switch r.Op {
	case "release":
		return nothing, held.release()
	case "check":
		return nothing, held.check()
	case "beat":
		held.beat()
		return nothing, nil
	case "extend":
		var err *C.PlError
		return nothing, done(C.pl_guard_extend(held.one, C.int64_t(r.LeaseMs), &err), err)
	case "lost":
		return lost(held, cancel)
	case "downgrade":
		var err *C.PlError
		if err := done(C.pl_guard_downgrade(held.one, &err), err); err != nil {
			return nil, err
		}
		return s.keep(r, held), nil
	case "upgrade":
		var err *C.PlError
		had, failed := outcome(C.pl_guard_try_upgrade(held.one, &err), err)
		if failed != nil || !had {
			return map[string]any{"held": false}, failed
		}
		return s.keep(r, held), nil
	}
	return nil, fmt.Errorf("there is no verb %q", r.Op)
}

func (s *shim) connect(r *request) (any, error) {
	var text texts
	defer text.free()
	var client *C.PlClient
	var err *C.PlError
	user, connected := connect(text.of(r.URL), &client, &err)
	if !connected {
		return nil, told(err)
	}
	s.Lock()
	s.clients[r.Client], s.users[r.Client] = client, user
	s.Unlock()
	var json *C.char
	if C.pl_client_capability(client, &json, &err) != C.PL_OK {
		return nil, told(err)
	}
	var capability any
	failed := parsed(json, &capability)
	return map[string]any{"capability": capability}, failed
}

func (s *shim) acquire(r *request, cancel *C.PlCancel) (any, error) {
	client, err := s.client(r)
	if err != nil {
		return nil, err
	}
	var text texts
	defer text.free()
	options, err := text.lockOptions(r.Mode, r.Options)
	if err != nil {
		return nil, err
	}
	var guard *C.PlGuard
	var status uint32
	var wrong *C.PlError
	if r.Op == "try" {
		status = C.pl_try_acquire(client, text.of(r.Lock), options, cancel, &guard, &wrong)
	} else {
		status = C.pl_acquire(client, text.of(r.Lock), options, cancel, &guard, &wrong)
	}
	had, err := outcome(status, wrong)
	if err != nil || !had {
		return map[string]any{"held": false}, err
	}
	return s.keep(r, held{one: guard}), nil
}

func (s *shim) acquireAll(r *request, cancel *C.PlCancel) (any, error) {
	client, err := s.client(r)
	if err != nil {
		return nil, err
	}
	var text texts
	defer text.free()
	options, err := text.lockOptions(nil, r.Options)
	if err != nil {
		return nil, err
	}
	var set *C.PlGuardSet
	var status uint32
	var wrong *C.PlError
	if r.Op == "try_all" {
		status = C.pl_try_acquire_all(client, text.list(r.Locks), options, cancel, &set, &wrong)
	} else {
		status = C.pl_acquire_all(client, text.list(r.Locks), options, cancel, &set, &wrong)
	}
	had, err := outcome(status, wrong)
	if err != nil || !had {
		return map[string]any{"held": false}, err
	}
	return s.keep(r, held{all: set}), nil
}

// lost waits for the loss of one lock. One that was given back has nothing left to lose, and nothing to tell.
func lost(held held, cancel *C.PlCancel) (any, error) {
	if held.one == nil {
		return nil, errors.New("the C ABI tells the loss of one lock, not of several")
	}
	var err *C.PlError
	if C.pl_guard_wait_ended(held.one, -1, cancel, &err) == C.PL_OK {
		select {}
	}
	told := told(err)
	if told.Code != "lease_lost" {
		return nil, told
	}
	return map[string]any{"reason": told.Reason}, nil
}

func breakLease(r *request, client *C.PlClient) (any, error) {
	var text texts
	defer text.free()
	var json *C.char
	var err *C.PlError
	status := C.pl_break_lease(client, text.of(r.Lock), C.uint64_t(r.Token), text.of(r.By), text.of(r.Reason),
		&json, &err)
	if status != C.PL_OK {
		return nil, told(err)
	}
	var came struct {
		Outcome string `json:"outcome"`
	}
	failed := parsed(json, &came)
	return map[string]any{"outcome": came.Outcome}, failed
}

// contender is a holder or a waiter.
type contender struct {
	Client   string `json:"client"`
	Label    any    `json:"label"`
	Mode     any    `json:"mode"`
	Permits  any    `json:"permits"`
	Token    any    `json:"fencing_token"`
	Renewals any    `json:"renewals"`
}

type snapshot struct {
	Locks []struct {
		Name    string      `json:"name"`
		Holders []contender `json:"holders"`
		Waiters []contender `json:"waiters"`
	} `json:"locks"`
	Clients []struct {
		ID       string `json:"id"`
		Pid      any    `json:"pid"`
		Language any    `json:"language"`
	} `json:"clients"`
}

func see(r *request, client *C.PlClient) (any, error) {
	var text texts
	defer text.free()
	var json *C.char
	var err *C.PlError
	if C.pl_list(client, text.of(r.Lock), 0, &json, &err) != C.PL_OK {
		return nil, told(err)
	}
	var shown snapshot
	if err := parsed(json, &shown); err != nil {
		return nil, err
	}
	seen := func(one contender) map[string]any {
		told := map[string]any{"label": one.Label, "mode": one.Mode, "permits": one.Permits, "pid": nil, "language": nil}
		for _, who := range shown.Clients {
			if who.ID == one.Client {
				told["pid"], told["language"] = who.Pid, who.Language
			}
		}
		return told
	}
	holders, waiters := []any{}, []any{}
	for _, lock := range shown.Locks {
		if lock.Name != r.Lock {
			continue
		}
		for _, one := range lock.Holders {
			told := seen(one)
			told["token"], told["renewals"] = one.Token, one.Renewals
			holders = append(holders, told)
		}
		for _, one := range lock.Waiters {
			waiters = append(waiters, seen(one))
		}
	}
	return map[string]any{"holders": holders, "waiters": waiters}, nil
}

func (s *shim) say(answer map[string]any) {
	line, err := json.Marshal(answer)
	if err != nil {
		line = []byte(`{"fault": "an answer that is no JSON"}`)
	}
	s.out.Lock()
	defer s.out.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func (s *shim) answer(r *request, call *call) {
	ok, err := s.serve(r, call.cancel)
	// From here on nobody finds the handle that is given back.
	s.Lock()
	delete(s.running, r.ID)
	triggered := call.triggered
	s.Unlock()
	C.pl_cancel_free(call.cancel)

	answer := map[string]any{"id": r.ID}
	var failed *failure
	switch {
	case err == nil:
		answer["ok"] = ok
	case errors.As(err, &failed) && failed.Code == "canceled" && triggered:
		answer["canceled"] = true
	case errors.As(err, &failed):
		answer["error"] = failed
	default:
		answer["fault"] = err.Error()
	}
	s.say(answer)
}

func (s *shim) trigger(target uint64) {
	s.Lock()
	defer s.Unlock()
	if call := s.running[target]; call != nil {
		call.triggered = true
		C.pl_cancel_trigger(call.cancel)
	}
}

func main() {
	shim := &shim{
		clients: map[string]*C.PlClient{},
		users:   map[string]unsafe.Pointer{},
		guards:  map[string]held{},
		running: map[uint64]*call{},
	}
	shim.say(map[string]any{
		"hello": "polylatch", "protocol": 1, "language": "c", "version": C.GoString(C.pl_version()),
		"can": []string{"cancel"},
	})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		request := &request{}
		if err := json.Unmarshal(lines.Bytes(), request); err != nil {
			fmt.Fprintln(os.Stderr, "a request that cannot be read:", err)
			os.Exit(2)
		}
		if request.Op == "cancel" {
			shim.trigger(request.Target)
			shim.say(map[string]any{"id": request.ID, "ok": nothing})
			continue
		}
		call := &call{cancel: C.pl_cancel_new()}
		shim.Lock()
		shim.running[request.ID] = call
		shim.Unlock()
		go shim.answer(request, call)
	}
}
