// A lock in Go through the C ABI: waiting ends with the context, and so does the work when the lock is
// lost.
//
//	go run . [URL]
package main

/*
#include <stdlib.h>
#include <polylatch.h>
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"
)

// Error is a failed call; Code is stable.
type Error struct{ Code, Message, Hint string }

func (e *Error) Error() string { return e.Message + " " + e.Hint }

func failure(err *C.PlError) error {
	defer C.pl_error_free(err)
	return &Error{
		Code:    C.GoString(C.pl_error_code(err)),
		Message: C.GoString(C.pl_error_message(err)),
		Hint:    C.GoString(C.pl_error_hint(err)),
	}
}

// Client is one connection; one per process is enough.
type Client struct{ client *C.PlClient }

// Connect asks the store once.
func Connect(url string) (*Client, error) {
	text, language := C.CString(url), C.CString("go")
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(language))
	var client *C.PlClient
	var err *C.PlError
	if C.pl_connect(text, nil, language, &client, &err) != C.PL_OK {
		return nil, failure(err)
	}
	return &Client{client}, nil
}

// Close releases what is held.
func (c *Client) Close() {
	C.pl_client_close(c.client, nil)
	C.pl_client_free(c.client)
}

// WithLock holds the lock while work runs. Waiting ends with ctx; the context that work gets ends when
// the lock is lost.
func (c *Client) WithLock(ctx context.Context, name string, work func(ctx context.Context, token uint64) error) error {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	cancel := C.pl_cancel_new()
	defer C.pl_cancel_free(cancel)

	var guard *C.PlGuard
	var err *C.PlError
	status := during(ctx, cancel, func() uint32 {
		return uint32(C.pl_acquire(c.client, text, nil, cancel, &guard, &err))
	})
	if status != C.PL_OK {
		return failure(err)
	}
	defer C.pl_guard_free(guard)

	// Ends with the lock. A goroutine of its own waits for the loss.
	inside, end := context.WithCancel(ctx)
	over := C.pl_cancel_new()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if C.pl_guard_wait_ended(guard, -1, over, nil) == C.PL_ERROR {
			end()
		}
	}()
	worked := work(inside, uint64(C.pl_guard_fencing_token(guard)))
	C.pl_cancel_trigger(over)
	<-watched
	C.pl_cancel_free(over)
	end()

	// A lost lock matters more than what the work said of it.
	if C.pl_guard_release(guard, &err) != C.PL_OK {
		return failure(err)
	}
	return worked
}

// during makes a call that waits, and has it cancelled when ctx ends.
func during(ctx context.Context, cancel *C.PlCancel, call func() uint32) uint32 {
	returned, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			C.pl_cancel_trigger(cancel)
		case <-returned:
		}
	}()
	status := call()
	close(returned)
	<-watched // the handle is in use until then
	return status
}

func run() error {
	url := "memory:"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	client, err := Connect(url)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.WithLock(context.Background(), "orders/42", func(_ context.Context, token uint64) error {
		fmt.Printf("held; write with token %d\n", token)

		// Another client gives up when its context ends.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		err := client.WithLock(ctx, "orders/42", func(context.Context, uint64) error { return nil })
		var failed *Error
		if !errors.As(err, &failed) || failed.Code != "canceled" {
			return fmt.Errorf("the second waiter should have given up, but: %v", err)
		}
		fmt.Println("a second waiter gave up:", failed.Code)
		return nil
	})
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("released")
}
