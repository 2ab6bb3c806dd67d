package main

/*
#include <stdlib.h>
#include <polylatch.h>
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"math"
	"unsafe"
)

// failure is what the library says of a failed call.
type failure struct {
	Code    string  `json:"code"`
	Retry   string  `json:"retry"`
	Effect  string  `json:"effect"`
	Reason  *string `json:"reason"`
	Message string  `json:"message"`
}

func (f *failure) Error() string { return f.Message }

// told takes over what went wrong.
func told(err *C.PlError) *failure {
	defer C.pl_error_free(err)
	told := &failure{
		Code:    C.GoString(C.pl_error_code(err)),
		Retry:   C.GoString(C.pl_error_retry(err)),
		Effect:  C.GoString(C.pl_error_effect(err)),
		Message: C.GoString(C.pl_error_message(err)),
	}
	if reason := C.pl_error_lost_reason(err); reason != nil {
		text := C.GoString(reason)
		told.Reason = &text
	}
	return told
}

// outcome turns how a call ended into whether it had what it wanted.
func outcome(status uint32, err *C.PlError) (bool, error) {
	switch status {
	case C.PL_OK:
		return true, nil
	case C.PL_BUSY:
		return false, nil
	default:
		return false, told(err)
	}
}

func done(status uint32, err *C.PlError) error {
	_, failed := outcome(status, err)
	return failed
}

// texts are given to C for the time of a call.
type texts struct{ given []unsafe.Pointer }

func (t *texts) of(text string) *C.char {
	given := C.CString(text)
	t.given = append(t.given, unsafe.Pointer(given))
	return given
}

// list makes a list that ends with NULL.
func (t *texts) list(words []string) **C.char {
	size := C.size_t(len(words)+1) * C.size_t(unsafe.Sizeof((*C.char)(nil)))
	place := C.malloc(size)
	t.given = append(t.given, place)
	list := unsafe.Slice((**C.char)(place), len(words)+1)
	for at, word := range words {
		list[at] = t.of(word)
	}
	list[len(words)] = nil
	return (**C.char)(place)
}

func (t *texts) free() {
	for _, given := range t.given {
		C.free(given)
	}
}

// parsed takes over a text of the library's and reads it as JSON.
func parsed(text *C.char, into any) error {
	defer C.pl_text_free(text)
	return json.Unmarshal([]byte(C.GoString(text)), into)
}

type mode struct {
	Kind     string `json:"kind"`
	Count    uint32 `json:"count"`
	Capacity uint32 `json:"capacity"`
}

// lockOptions makes the library's options of a scenario's.
func (t *texts) lockOptions(mode *mode, given map[string]any) (*C.PlLockOptions, error) {
	// Not on Go's stack: it has pointers to texts in it.
	options := (*C.PlLockOptions)(C.calloc(1, C.sizeof_PlLockOptions))
	t.given = append(t.given, unsafe.Pointer(options))
	C.pl_lock_options_init(options, C.sizeof_PlLockOptions)
	if mode != nil {
		kinds := map[string]C.uint32_t{
			"mutex": C.PL_MUTEX, "read": C.PL_READ, "write": C.PL_WRITE, "permits": C.PL_PERMITS,
		}
		kind, known := kinds[mode.Kind]
		if !known {
			return nil, fmt.Errorf("there is no mode %q", mode.Kind)
		}
		options.mode = kind
		if mode.Kind == "permits" {
			options.permits, options.capacity = C.uint32_t(mode.Count), C.uint32_t(mode.Capacity)
		}
	}
	for key, value := range given {
		if err := t.set(options, key, value); err != nil {
			return nil, err
		}
	}
	return options, nil
}

func (t *texts) set(options *C.PlLockOptions, key string, value any) error {
	lengths := map[string]*C.int64_t{
		"lease_ms": &options.lease_ms, "wait_ms": &options.wait_ms,
		"max_hold_ms": &options.max_hold_ms, "beat_every_ms": &options.beat_every_ms,
		"keep_idle_ms": &options.keep_idle_ms,
	}
	words := map[string]**C.char{"label": &options.label, "owner": &options.owner}
	choices := map[string]*C.int32_t{"fifo": &options.fifo, "renew": &options.renew}
	switch value := value.(type) {
	case float64:
		if place := lengths[key]; place != nil && value == math.Trunc(value) {
			*place = C.int64_t(value)
			return nil
		}
	case string:
		if place := words[key]; place != nil {
			*place = t.of(value)
			return nil
		}
	case bool:
		if place := choices[key]; place != nil {
			*place = 0
			if value {
				*place = 1
			}
			return nil
		}
	}
	return fmt.Errorf("there is no option %s that could be %v", key, value)
}

// held is one lock or several: one of the two.
type held struct {
	one *C.PlGuard
	all *C.PlGuardSet
}

func (h held) shown() map[string]any {
	if h.one != nil {
		return map[string]any{
			"held":  true,
			"token": uint64(C.pl_guard_fencing_token(h.one)),
			"locks": []string{C.GoString(C.pl_guard_name(h.one))},
		}
	}
	names := []string{}
	for at := C.size_t(0); at < C.pl_guard_set_count(h.all); at++ {
		names = append(names, C.GoString(C.pl_guard_set_name(h.all, at)))
	}
	return map[string]any{"held": true, "locks": names}
}

func (h held) check() error {
	var err *C.PlError
	if h.one != nil {
		return done(C.pl_guard_check(h.one, &err), err)
	}
	return done(C.pl_guard_set_check(h.all, &err), err)
}

func (h held) release() error {
	var err *C.PlError
	if h.one != nil {
		return done(C.pl_guard_release(h.one, &err), err)
	}
	return done(C.pl_guard_set_release(h.all, &err), err)
}

func (h held) beat() {
	if h.one != nil {
		C.pl_guard_beat(h.one)
		return
	}
	C.pl_guard_set_beat(h.all)
}
