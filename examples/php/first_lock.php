<?php
// A lock in PHP through the C ABI and PHP's FFI.
//
//   php -d ffi.enable=1 first_lock.php LIBRARY HEADER [URL]
declare(strict_types=1);

[$program, $library, $header] = $argv + [null, null, null];
$url = $argv[3] ?? 'memory:';

// PHP's FFI reads declarations, not preprocessor lines, and has no C++.
$declarations = preg_replace(['/^#ifdef __cplusplus.*?^#endif.*?$/ms', '/^#.*$/m'], '', file_get_contents($header));
$polylatch = FFI::cdef($declarations, $library);

function must(FFI $polylatch, int $status, FFI\CData $error): void
{
    if ($status !== $polylatch->PL_ERROR) {
        return;
    }
    $message = $polylatch->pl_error_message($error) . ' ' . $polylatch->pl_error_hint($error);
    $polylatch->pl_error_free($error);
    throw new RuntimeException($message);
}

$error = $polylatch->new('PlError *');
$client = $polylatch->new('PlClient *');
must($polylatch, $polylatch->pl_connect($url, null, 'php', FFI::addr($client), FFI::addr($error)), $error);

$guard = $polylatch->new('PlGuard *');
must($polylatch, $polylatch->pl_acquire($client, 'orders/42', null, null, FFI::addr($guard), FFI::addr($error)), $error);
try {
    printf("held; write with token %d\n", $polylatch->pl_guard_fencing_token($guard));

    $second = $polylatch->new('PlGuard *');
    $status = $polylatch->pl_try_acquire($client, 'orders/42', null, null, FFI::addr($second), FFI::addr($error));
    echo $status === $polylatch->PL_BUSY ? "a second one learns at once that it is busy\n" : "unexpected: $status\n";

    must($polylatch, $polylatch->pl_guard_release($guard, FFI::addr($error)), $error);
    echo "released\n";
} finally {
    $polylatch->pl_guard_free($guard);
    $polylatch->pl_client_free($client);
}
